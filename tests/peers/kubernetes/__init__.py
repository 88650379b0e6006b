"""A real Kubernetes API server on etcd, without nodes. `make kubernetes` builds it."""
