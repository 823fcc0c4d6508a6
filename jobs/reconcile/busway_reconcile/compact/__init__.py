"""Compacting: raw hours as Parquet, with an index, so that a run need not read every record again."""
