"""How files of rows are read: encodings, dialects, records, cells, and the files that a name stands for."""
