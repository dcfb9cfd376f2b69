//! A payment acquirer to play with: charges once per id, and fails on request in every way a real one does.
