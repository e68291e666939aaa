"""The tables of the adapters: each beside the bare Loader, or what its framework has."""

from benchmarks.measure import Peer, Table

__all__ = ["TABLES"]


def _png(name: str, title: str, ours: str, *peers: Peer, **options: str) -> Table:
    return Table(name, f"{title}, PNG to float32", "small", f"adapters.{ours}", peers, **options)  # type: ignore[arg-type]


TABLES = [
    _png(
        "torch",
        "DataLoader(loader) of the torch adapter",
        "torch adapter",
        Peer("the Loader itself", "adapters.torch loader", 0.9),
        Peer("torch DataLoader of 2 workers, vahidk/tfrecord and Pillow", "peers.vahidk png 2", 4),
    ),
    _png(
        "tensorflow",
        "to_dataset of the TensorFlow adapter",
        "tensorflow to_dataset",
        Peer("the Loader itself", "adapters.tensorflow loader", 0.9),
    ),
    _png(
        "tensorflow processor",
        "to_dataset of the TensorFlow adapter, by processor time",
        "tensorflow to_dataset",
        Peer("tf.data, as in its guides", "adapters.tensorflow guide", 3),
        by="processor",
    ),
    _png(
        "tensorflow train",
        "model.fit of a small network with to_dataset",
        "tensorflow train to_dataset",
        Peer("one repeated batch", "adapters.tensorflow train repeated", 0.9),
    ),
    _png(
        "tensorflow fit",
        "model.fit of one Dense layer with to_dataset",
        "tensorflow fit to_dataset",
        Peer("one repeated batch", "adapters.tensorflow fit repeated", 0.9),
    ),
    _png(
        "tensorflow fit processor",
        "model.fit of one Dense layer with to_dataset, by processor time",
        "tensorflow fit to_dataset",
        Peer("tf.data, as in its guides", "adapters.tensorflow fit guide", 3),
        by="processor",
    ),
    _png(
        "grain",
        "TrackedDataset of the Grain adapter",
        "jax tracked",
        Peer("the Loader itself", "adapters.jax bare", 0.9),
    ),
    _png(
        "grain workers",
        "TrackedDataset of the Grain adapter with 2 workers",
        "jax workers",
        Peer("without workers", "adapters.jax tracked", 0.1),
    ),
    Table(
        "grain records",
        "RecordSource of the Grain adapter in a MapDataset",
        "small",
        "adapters.jax records",
        (Peer("its records one by one", "adapters.jax single", 2),),
    ),
    _png(
        "jax",
        "make_global_batch of the JAX adapter",
        "jax global",
        Peer("make_array_from_process_local_data", "adapters.jax placed", 0.9),
    ),
    *(
        _png(
            f"keras {backend} {ours}",
            f"Keras on {backend}, {title}, by processor time",
            f"{backend} keras {ours}",
            *(Peer(label, f"adapters.{backend} keras {job}", 0.9) for label, job in peers),
            by="processor",
        )
        for backend in ("torch", "jax")
        for ours, title, peers in (
            ("drained", "PyDataset", [("the Loader itself", "loader")]),
            (
                "fit",
                "fit of PyDataset",
                [
                    ("fit of a generator over it", "generator"),
                    ("fit of one repeated batch", "repeated"),
                ],
            ),
        )
    ),
]
