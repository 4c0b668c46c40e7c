"""Pools: knowledge shared by several namespaces."""
