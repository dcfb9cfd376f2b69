//! What a process needs before it has a purpose: flags, telemetry, shutdown, listeners, health, authentication of callers.
