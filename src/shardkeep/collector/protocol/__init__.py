"""Messages between clients and a collector, and what both sides need to exchange them.

Other rooms import `address`, `address_file`, `keys`, `limits`, `messages`, `payload`, `schema`,
`settings`, `slots`, `values` and `zeromq`.
"""
