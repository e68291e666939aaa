"""Output of the commands: tables for people, JSON for programs, progress bars.

Commands import these modules when they print, so ``--help`` loads neither Rich nor NumPy. Everything that
comes from a file goes through `one_line`, because its bytes must not steer a terminal.
Other rooms import any module.
"""
