"""Programs of the adapters, each in the process of its framework, with what it is compared with."""
