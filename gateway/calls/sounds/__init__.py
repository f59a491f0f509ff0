"""Sounds besides speech on calls: files of the operator that programs play."""
