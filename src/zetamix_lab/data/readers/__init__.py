"""Readers: from files on disk to a `SampleTable`, or by name to a `Source`."""
