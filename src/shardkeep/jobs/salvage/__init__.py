"""Parts of `repair`: one salvager for each kind of damaged file, and the report.

A salvager is a function ``salvage_X(path, output, *, exists, tick) -> RepairedFile``. It opens `path` for
reading only, and publishes `output` (`shardkeep.files.publish` with `exists`) if anything could be kept; with
``None`` it writes nothing anywhere. ``tick(count)`` is called with the number of bytes of each block that was
done, and may raise. Damage is never an error; errors of the system are, and a file of another kind.
Other rooms import `file_copy`, `job`, `live_writers`, `outputs`, `report` and `uploads`.
"""
