//! Descriptions of bytes that are not an image of a supported format.

/// Return one line with the kind of the bytes and the supported formats.
pub fn describe(bytes: &[u8]) -> String {
    let what = kind(bytes);
    match what {
        Some(what) => format!("wanted a PNG, JPEG or WebP, found {what} ({} bytes)", bytes.len()),
        None => {
            let head = bytes.get(..8).unwrap_or(bytes);
            let head: String = head.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("wanted a PNG, JPEG or WebP, found {} bytes that start with {head}", bytes.len())
        }
    }
}

fn kind(bytes: &[u8]) -> Option<&'static str> {
    let at = |offset: usize, magic: &[u8]| bytes.get(offset..).is_some_and(|rest| rest.starts_with(magic));
    let text = bytes.trim_ascii_start();
    let text =
        |word: &str| text.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word.as_bytes()));
    Some(match bytes {
        [] => "an empty value",
        _ if at(0, b"GIF87a") || at(0, b"GIF89a") => "a GIF image",
        _ if at(0, b"BM") && at(6, &[0, 0, 0, 0]) => "a BMP image",
        _ if at(0, b"II*\0") || at(0, b"MM\0*") => "a TIFF image",
        _ if at(4, b"ftypavif") => "an AVIF image",
        _ if at(4, b"ftyphei") || at(4, b"ftypmif1") => "a HEIF image",
        _ if at(4, b"ftyp") => "an MP4 or similar file",
        _ if at(0, &[0xff, 0x0a]) || at(0, b"\0\0\0\x0cJXL ") => "a JPEG XL image",
        _ if at(0, &[0, 0, 0, 12, b'j', b'P']) || at(0, &[0xff, 0x4f, 0xff, 0x51]) => "a JPEG 2000 image",
        _ if at(0, b"8BPS") => "a Photoshop file",
        _ if at(0, &[0, 0, 1, 0]) => "an ICO image",
        _ if at(0, b"\x93NUMPY") => "a NumPy .npy array",
        _ if at(0, b"%PDF") => "a PDF",
        _ if at(0, &[0x1f, 0x8b]) => "gzip data",
        _ if at(0, b"PK\x03\x04") => "a zip file",
        _ if at(1, b"PNG") => "a PNG whose first bytes are damaged",
        _ if at(0, &[0xff, 0xd8]) => "a JPEG whose first bytes are damaged",
        _ if text("<!doctype html") || text("<html") => "an HTML page",
        _ if text("<svg") => "an SVG image",
        _ if text("<?xml") => "an XML document",
        _ if text("{") || text("[") => "JSON or other text",
        _ if bytes.iter().all(|&byte| byte == 0) => "nothing but NUL bytes",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_usual_suspects() {
        for (bytes, word) in [
            (&b"GIF89a...."[..], "GIF"),
            (b"BM\x10\0\0\0\0\0\0\0", "BMP"),
            (b"II*\0\x08\0\0\0", "TIFF"),
            (b"\n <!DOCTYPE HTML><html>", "HTML"),
            (b"", "empty"),
            (b"\0\0\0\0\0\0\0\0\0", "NUL"),
            (b"hello world", "68656c6c6f20776f"),
        ] {
            assert!(describe(bytes).contains(word), "{}", describe(bytes));
        }
    }
}
