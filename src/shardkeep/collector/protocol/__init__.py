"""The protocol between clients and a collector: messages, addresses, keys and shared memory.

Other rooms import `address`, `address_file`, `keys`, `limits`, `messages`, `payload`,
`remote_file`, `schema`, `settings`, `slots`, `values` and `zeromq`.
"""
