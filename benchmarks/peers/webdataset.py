"""WebDataset: the records in tar files, in this process or in a DataLoader of PyTorch."""

import itertools

import webdataset as wds

from benchmarks.peer_loop import serve, take
from benchmarks.workloads import tars


def samples(files, **options):
    return wds.WebDataset(files[: len(files) // 2], shardshuffle=False, empty_check=False, **options)


def raw(files, batch, most):
    return take(samples(files).to_tuple("bin").batched(batch, collation_fn=list), most)


def shuffled(files, batch, most):
    """Shuffle through a buffer of all 60,000 samples, as the others shuffle all."""
    found = samples(files).shuffle(60_000, initial=60_000).to_tuple("bin").batched(batch, collation_fn=list)
    return take(found, most)


def resume(files, batch, most):
    """Read and drop the first half, since this reader has no state."""
    half = sum(1 for _ in samples(files)) // 2
    yield
    found = itertools.islice(samples(files).shuffle(60_000, initial=60_000), half, None)
    list(itertools.islice(found, batch))
    yield 1


def png(files, batch, most):
    images = wds.WebDataset(files[len(files) // 2 :], shardshuffle=False, empty_check=False)
    found = images.decode("rgb").to_tuple("png", "cls").batched(batch)
    loader = wds.WebLoader(found, batch_size=None, num_workers=2)
    return take(loader, most, lambda rows: len(rows[1]))


JOBS = {"raw": raw, "shuffled": shuffled, "resume": resume, "png": png}

if __name__ == "__main__":
    serve(JOBS, "webdataset torch", tars)
