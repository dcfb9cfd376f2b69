//! The orders service: ticket stock, orders, tickets and payments at the acquirer.
