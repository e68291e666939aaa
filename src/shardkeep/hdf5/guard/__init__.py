"""Guard over all uses of h5py in a program, which stops those that would destroy a file.

Other rooms import `findings` and `watch`.
"""
