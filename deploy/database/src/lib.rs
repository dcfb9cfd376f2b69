//! Opens SQLite or Postgres the safe way, applies migrations, and runs one transaction text on both.
