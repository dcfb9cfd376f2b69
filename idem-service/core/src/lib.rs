//! The pure core: what every command on a key decides, with no I/O and no clock.
