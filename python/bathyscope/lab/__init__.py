"""The disposable cluster: real Ceph daemons on one machine."""
