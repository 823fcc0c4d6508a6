"""Where state is kept: blobs, documents and SQLite files."""
