//! Named points at which a debug build can be made to fail or die.
