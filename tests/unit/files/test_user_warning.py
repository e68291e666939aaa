"""Warnings that show the line of the calling program."""

import warnings

import h5py
import pytest

from shardkeep.files import user_warning
from shardkeep.files.user_warning import warn_user

OURS = user_warning.__file__.replace("user_warning", "elsewhere")


def _from(filename, then):
    """Return a function in line 2 of a file of that name, which calls another one."""
    names = {"then": then}
    exec(compile("def call():\n    then()\n", filename, "exec"), names)
    return names["call"]


def _told(call, action="always"):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        call()
        call()
    return [(one.filename, one.lineno, str(one.message)) for one in caught]


def _ours():
    return _from(h5py.__file__, _from(OURS, _from(user_warning.__file__, _warn)))


_names = {"warn_user": warn_user}
exec(compile("def warn():\n    warn_user('so')\n", OURS, "exec"), _names)
_warn = _names["warn"]


def test_warning_has_the_line_of_the_users_call():
    assert _told(_from("main.py", _from("theirs.py", _ours()))) == [("theirs.py", 2, "so")] * 2


def test_warning_obeys_the_filters():
    assert len(_told(_from("theirs.py", _ours()), "default")) == 1
    with pytest.warns(RuntimeWarning, match="so"):
        warn_user("so")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="so"):
            warn_user("so")
