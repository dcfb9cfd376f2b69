//! The end of a play, whatever broke on the way: read from the rows and from the acquirer's own book, behind everybody's back.

use std::time::Duration;

use database::{Row, params};

use super::stage::{Answered, ROUNDS, Stage, grant};
use crate::{error::OrdersError, operation_id::PaymentId, payment::Verdict, resolve::Found, wire};

/// Rounds after which nothing may be left to do.
const ROUNDS_MAX: usize = 8;

const STOCK: &str = "SELECT capacity, sold, held FROM ticket_types WHERE id = $1";

const ORDERS: &str = "\
SELECT o.id, o.status, o.paid_by, i.quantity
  FROM orders o
  JOIN order_items i ON i.order_id = o.id
 WHERE i.ticket_type = $1";

const PAYMENTS: &str = "\
SELECT p.id, p.status, o.label, r.id AS refund, r.acknowledged_at,
       (SELECT count(*) FROM acquirer_events e WHERE e.payment_id = p.id AND e.applied_at IS NULL) AS waiting
  FROM payments p
  JOIN operations o ON o.id = p.operation_id
  JOIN order_items i ON i.order_id = p.order_id
  LEFT JOIN refunds r ON r.payment_id = p.id
 WHERE i.ticket_type = $1";

const IDLE: &str = "\
SELECT count(*) AS sessions
  FROM pg_stat_activity
 WHERE datname = current_database()
   AND state LIKE 'idle in transaction%'";

struct Order {
    status: String,
    paid_by: Option<String>,
    seats: i64,
}

struct Payment {
    id: PaymentId,
    status: String,
    label: Option<String>,
    /// Ordered, and whether it was acknowledged.
    refund: Option<bool>,
    waiting_events: i64,
}

impl Payment {
    fn is_open(&self) -> bool {
        ["started", "pending", "refund_pending"].contains(&self.status.as_str()) || self.waiting_events > 0
    }
}

impl Stage<'_> {
    /// Lets what is left to do be done, and checks what is promised.
    pub async fn check_end(&self) {
        for _ in 0..ROUNDS_MAX {
            self.rounds_later(&ROUNDS).await;
            if !self.payments().await.iter().any(Payment::is_open) {
                break;
            }
        }
        self.check_seats().await;
        self.check_money().await;
        let answered = std::mem::take(&mut *self.answered.lock().unwrap());
        for it in &answered {
            self.check_replay(it).await;
        }
        if self.bench.is_postgres {
            self.check_sessions().await;
        }
    }

    /// One order for each key that was answered with one; stock counts their seats, no more and no less.
    async fn check_seats(&self) {
        let stock = |row: &Row| Ok((row.get::<i64>("capacity")?, row.get::<i64>("sold")?, row.get::<i64>("held")?));
        let stock = self.read(STOCK, stock).await;
        let (capacity, sold, held) = stock[0];
        let orders = self.orders().await;
        let of =
            |status: &str| orders.iter().filter(|order| order.status == status).map(|order| order.seats).sum::<i64>();
        assert_eq!((sold, held), (of("paid"), of("pending")), "seats sold and held are those of the orders");
        assert!(sold + held <= capacity, "{sold} sold and {held} held of {capacity}");
        let answered = self.answered.lock().unwrap();
        let placed = answered.iter().filter(|it| it.kind == crate::outcome::Kind::PlaceOrder).count();
        assert_eq!(orders.len(), placed, "one order for each key");
    }

    /// Nothing undecided, and what was charged either pays an order or has gone back once.
    async fn check_money(&self) {
        let (orders, payments) = (self.orders().await, self.payments().await);
        for payment in &payments {
            let (id, name) = (payment.id, payment.id.to_string());
            assert!(
                !payment.is_open(),
                "payment {id} is left {} with {} events",
                payment.status,
                payment.waiting_events
            );
            let is_charged = self.script.status(&name) == Some(Verdict::Approved);
            let gone_back = self.script.refunds(&name);
            assert!(gone_back <= usize::from(is_charged), "{gone_back} refunds of payment {id}");
            assert_eq!(payment.refund, (gone_back == 1).then_some(true), "the refund of payment {id} is acknowledged");
            let pays = orders.iter().filter(|it| it.status == "paid" && it.paid_by.as_ref() == Some(&name)).count();
            assert_eq!(pays, usize::from(is_charged) - gone_back, "orders paid by payment {id} ({})", payment.status);
            let is_given_up = payment.status == "closed";
            assert!(!(is_given_up && is_charged), "payment {id} is given up and charged");
            assert_eq!(payment.label.as_deref() == Some("final"), !is_given_up, "payment {id}: {:?}", payment.label);
        }
    }

    /// Asked again under a higher token the answer is the same bytes, and who was fenced stays fenced.
    async fn check_replay(&self, it: &Answered) {
        let bytes = wire::encode(it.kind, &it.outcome);
        let again = (it.ask)(self.shop(), grant(it.operation, 1000)).await.unwrap();
        let outcome = again.outcome.expect("a final answer says something");
        assert!(again.is_replay && wire::encode(it.kind, &outcome) == bytes, "{outcome:?} after {:?}", it.outcome);
        match self.shop().lookup(grant(it.operation, 1001), false, None).await.unwrap() {
            Found::Settled { outcome, .. } => assert_eq!(wire::encode(it.kind, &outcome), bytes, "looked up"),
            other => panic!("an answered operation is looked up as {other:?}"),
        }
        let late = (it.ask)(self.shop(), grant(it.operation, 1)).await;
        assert!(matches!(late, Err(OrdersError::StaleToken)), "a late holder is answered {late:?}");
    }

    async fn check_sessions(&self) {
        for _ in 0..100 {
            // What a died task has left open is ended in the background, at once.
            if self.read_all(IDLE, Vec::new(), |row| row.get::<i64>("sessions")).await == [0] {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("a session is left in a transaction");
    }

    /// A payment's own status, as stored.
    pub async fn payment_status(&self, id: PaymentId) -> Option<String> {
        self.payments().await.into_iter().find(|payment| payment.id == id).map(|payment| payment.status)
    }

    /// Where the orders of this play stand, as stored.
    pub async fn order_statuses(&self) -> Vec<String> {
        self.orders().await.into_iter().map(|order| order.status).collect()
    }

    async fn orders(&self) -> Vec<Order> {
        let order = |row: &Row| {
            Ok(Order { status: row.get("status")?, paid_by: row.get("paid_by")?, seats: row.get("quantity")? })
        };
        self.read(ORDERS, order).await
    }

    async fn payments(&self) -> Vec<Payment> {
        let payment = |row: &Row| {
            let refund: Option<String> = row.get("refund")?;
            let acknowledged_at: Option<i64> = row.get("acknowledged_at")?;
            Ok(Payment {
                id: PaymentId::parse(&row.get::<String>("id")?).expect("a payment id"),
                status: row.get("status")?,
                label: row.get("label")?,
                refund: refund.map(|_| acknowledged_at.is_some()),
                waiting_events: row.get("waiting")?,
            })
        };
        self.read(PAYMENTS, payment).await
    }

    /// Rows of this play's ticket type.
    async fn read<T: Send + 'static>(
        &self,
        sql: &'static str,
        row: impl Fn(&Row) -> Result<T, database::DatabaseError> + Copy + Send + Sync + 'static,
    ) -> Vec<T> {
        self.read_all(sql, params![&self.ticket_type], row).await
    }

    async fn read_all<T: Send + 'static>(
        &self,
        sql: &'static str,
        params: Vec<database::Value>,
        row: impl Fn(&Row) -> Result<T, database::DatabaseError> + Copy + Send + Sync + 'static,
    ) -> Vec<T> {
        let read = self.bench.store.read("test: end", move |tx| {
            let params = params.clone();
            Box::pin(async move { tx.query(sql, &params).await?.iter().map(row).collect::<Result<Vec<_>, _>>() })
        });
        read.await.unwrap()
    }
}
