//! The allocator of every program here: answers and rows are made on one thread and freed on another, which the system's own is slow at.

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;
