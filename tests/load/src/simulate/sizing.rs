//! How many cores and cells a rate needs, so that none is busier than it is meant to be.

use super::Simulate;

/// What a rate needs.
pub struct Need {
    /// Cells: an idempotency store, an orders store, and the services before them.
    pub cells: usize,
    /// Requests a second in the busiest of them.
    pub busiest: f64,
    /// Over all cells.
    pub gateway_cores: usize,
    /// Over all cells.
    pub idem_cores: usize,
    /// Over all cells.
    pub orders_cores: usize,
}

/// More cells than this do not help: then one tenant alone is too much for a cell, and has to be divided.
const CELLS_MAX: usize = 4096;

/// Sizes everything for `rate`. Replays end before the orders service and write nothing.
pub fn size(rate: f64, it: &Simulate) -> Need {
    let costs = &it.costs;
    let fresh = 1.0 - it.replays;
    // A store is as many rows a second as its cores can take, reserved and completed.
    let row_us = (2.0 * costs.idem_row_us).max(costs.order_row_us);
    let cell_max = costs.store_cores as f64 * it.busy * 1e6 / row_us / fresh;
    let mut cells = (rate / cell_max).ceil().max(1.0) as usize;
    while it.busiest_share(cells) * rate > cell_max && cells < CELLS_MAX {
        cells += (cells / 8).max(1);
    }
    let busiest = it.busiest_share(cells) * rate;
    // Every cell is sized for what the busiest gets, since nobody knows which one that will be.
    let cores = |us: f64, share: f64| ((busiest * share * us / 1e6 / it.busy).ceil().max(1.0) as usize) * cells;
    Need {
        cells,
        busiest: busiest * fresh,
        gateway_cores: cores(costs.gateway_us, 1.0),
        idem_cores: cores(costs.idem_us, fresh),
        orders_cores: cores(costs.orders_us, fresh),
    }
}
