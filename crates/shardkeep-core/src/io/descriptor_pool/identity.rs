//! Identity of a file, to detect that a path refers to another file than at the first opening.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Inner, syscalls};
use crate::error::{Error, Kind, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    /// Seconds and nanoseconds since the epoch.
    pub(super) modified: (i64, i64),
}

impl Identity {
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)] // the widths differ between platforms
    pub(super) fn of(stat: &libc::stat) -> Self {
        Self {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
        }
    }

    pub(super) fn modified_utc(&self) -> String {
        format_utc(self.modified.0)
    }
}

pub(super) fn check_identity(fd: RawFd, file: &Inner) -> Result<()> {
    let stat = syscalls::status(fd).map_err(|e| Error::os(&e, "inspect the file", &file.path))?;
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => {}
        libc::S_IFDIR => {
            let what = "a folder, not a file; pass the files in it";
            return Err(Error::new(Kind::Format, what).at(&file.path));
        }
        _ => {
            let what = "a pipe, socket or device, not a file that can be read by offset";
            return Err(Error::new(Kind::Format, what).at(&file.path));
        }
    }
    let now = Identity::of(&stat);
    let first = *file.identity.get_or_init(|| now);
    if (first.device, first.inode) == (now.device, now.inode) || file.released.load(Ordering::Relaxed) {
        return Ok(());
    }
    Err(Error::new(
        Kind::Changed,
        format!(
            "the file was replaced by another one, last written {}, while it was being read; restart the epoch with \
             the new file",
            now.modified_utc()
        ),
    )
    .at(&file.path))
}

pub(super) fn utc_now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format_utc(i64::try_from(since.as_secs()).unwrap_or(0))
}

/// `2026-11-28T01:54:12Z`; the calendar after Howard Hinnant's `civil_from_days`.
fn format_utc(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_in_utc() {
        assert_eq!(format_utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(format_utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(format_utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(format_utc(1_795_830_852), "2026-11-28T01:54:12Z");
        assert_eq!(format_utc(-1), "1969-12-31T23:59:59Z");
    }
}
