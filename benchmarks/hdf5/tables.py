"""The tables of HDF5."""

from functools import partial

from benchmarks.hdf5.files import damaged, empty, gzip_files, one, segments, virtual
from benchmarks.measure import Peer, Table

__all__ = ["TABLES"]

_NO_MPI = "h5py's wheels are built without MPI; a build from source needs Debian's libhdf5-openmpi-dev"
_LARGE = partial(gzip_files, rows=8192, chunk_rows=1024)
_SMALL = partial(gzip_files, rows=2048, chunk_rows=128)
_RESIZE = "h5py, resize and assign"

TABLES = [
    Table(
        "hdf5 write",
        "HDF5 by 4 processes: 6,400 rows of 32 KiB through the collector",
        empty,
        "hdf5.write collector",
        (
            Peer("limit: h5py in one process, whole chunks", "hdf5.write plain", 0.8),
            Peer("multiprocessing.Queue, one writer with h5py", "hdf5.write queue", 3),
            Peer("zarr (a folder of chunks)", "hdf5.zarr write", 1),
            Peer("Shardkeep's worker files and their merge", "hdf5.write worker files"),
            Peer("parallel HDF5 (mpi4py and h5py)", _NO_MPI),
            Peer("PyTables", "one process can write a file"),
        ),
        batch=6400,
    ),
    Table(
        "hdf5 write fsync",
        "The same, synced to the disk",
        empty,
        "hdf5.write collector fsync",
        (Peer("limit: h5py in one process, whole chunks", "hdf5.write plain fsync", 0.8),),
        batch=6400,
    ),
    *(
        Table(
            f"append {case}",
            f"Rows appended by one process: {title}",
            empty,
            f"hdf5.append ours {case}",
            (Peer(peer, f"hdf5.append plain {case}", wanted),),
            batch=1_000_000,
        )
        for case, title, peer, wanted in (
            ("one", "512 bytes, one a call", _RESIZE, 100),
            ("scalar", "4-byte scalars, one a call", _RESIZE, 100),
            ("64", "512 bytes, 64 a call", _RESIZE, 2),
            ("1024", "512 bytes, 1,024 a call", "h5py, whole chunks", 1),
            ("gzip", "512 bytes, 1,024 a call, gzip 4 with shuffle", "h5py, the same", 0.9),
        )
    ),
    Table(
        "hdf5 merge",
        "HDF5 merge: 64 files of gzip chunks of 512 KiB, synced",
        _LARGE,
        "hdf5.merge copy",
        (
            Peer("limit: cat", "hdf5.merge cat", 0.7),
            Peer("h5repack of each file", "hdf5.merge h5repack", 2),
            Peer("h5py, decoding and encoding", "hdf5.merge h5py", 20),
            Peer("PyTables, the same", "hdf5.pytables merge", 20),
            Peer("zarr", "does not read HDF5 files"),
        ),
    ),
    Table(
        "hdf5 merge small",
        "HDF5 merge: 64 files of gzip chunks of 64 KiB, synced",
        _SMALL,
        "hdf5.merge copy",
        (Peer("limit: cat", "hdf5.merge cat", 0.7),),
    ),
    *(
        Table(
            f"open {name}",
            f"hdf5.open: {title}",
            files,
            f"hdf5.open ours {ours}",
            (Peer(peer, f"hdf5.open h5py {theirs}", wanted),),
        )
        for name, title, files, ours, peer, theirs, wanted in (
            ("file", "open and close", one, "opened", "h5py", "opened", 0.5),
            ("first row", "open, one row, close", one, "first row", "h5py", "first row", 0.5),
            ("row", "one row of an open file", one, "one row", "h5py", "one row", 0.5),
            ("rows", "1,024 rows of an open file", one, "1024 rows", "h5py", "1024 rows", 0.5),
            ("dataset", "a whole dataset", one, "whole", "h5py", "whole", 0.5),
            ("sources", "all of 4,000 sources", virtual, "whole", "h5py on a plain file", "whole plain", 0.5),
            ("vds", "all of 4,000 sources", virtual, "whole", "h5py on the same", "whole", 0.5),
            (
                "cold",
                "all of 4,000 sources, in a new process",
                virtual,
                "whole first",
                "h5py on a plain file",
                "whole first plain",
                0.5,
            ),
            (
                "random",
                "500 random rows of 4,000 sources",
                virtual,
                "random",
                "h5py on a plain file",
                "random plain",
                0.05,
            ),
        )
    ),
    *(
        Table(
            f"salvage {kind}",
            f"Salvage of 1 GiB of HDF5, {title}",
            partial(damaged, is_checked=kind == "checked"),
            "hdf5.salvage salvage",
            (
                Peer("limit: a synced copy", "hdf5.salvage copy"),
                Peer("h5py, reading it", "hdf5.salvage read", 0.2),
            ),
        )
        for kind, title in (("plain", "contiguous rows"), ("checked", "chunks with fletcher32"))
    ),
    Table(
        "virtual merge",
        "Virtual merge of 4,000 segments",
        segments,
        "hdf5.merge virtual",
        (Peer("a copy of the same", "hdf5.merge copy"),),
    ),
]
