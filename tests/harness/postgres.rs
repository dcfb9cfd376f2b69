//! A database of one test's own on the private server.

use tokio_postgres::NoTls;

/// A database of one test's own.
#[derive(Clone, Debug)]
pub struct PrivateDatabase {
    /// For programs to connect, perhaps through a pooler.
    pub url: String,
    /// Past it, for the test's own eyes and hands.
    direct: String,
}

impl PrivateDatabase {
    /// Creates one on the server of `IDEM_TEST_POSTGRES`.
    pub async fn create() -> Self {
        let name = format!("e2e_{}", uuid::Uuid::new_v4().simple());
        let database = Self::named(&name);
        let (base, _) = database.direct.rsplit_once('/').expect("a URL with a database");
        let create = format!("CREATE DATABASE {name}");
        connect(&format!("{base}/postgres")).await.batch_execute(&create).await.expect("a database");
        database
    }

    /// The database that a program connects to by `url`.
    pub fn of(url: &str) -> Self {
        Self::named(url.rsplit_once('/').expect("a URL with a database").1)
    }

    fn named(name: &str) -> Self {
        let server = std::env::var("IDEM_TEST_POSTGRES")
            .expect("this test needs Postgres: run it by `tests/run`, or after `eval \"$(tests/postgres start)\"`");
        let direct = std::env::var("IDEM_TEST_POSTGRES_DIRECT").unwrap_or_else(|_| server.clone());
        let at = |server: &str| {
            let (base, _) = server.rsplit_once('/').expect("a URL with a database");
            format!("{base}/{name}")
        };
        Self { url: at(&server), direct: at(&direct) }
    }

    /// One number from a query.
    pub async fn number(&self, query: &str) -> i64 {
        connect(&self.direct).await.query_one(query, &[]).await.expect("one row").get(0)
    }

    /// Runs any SQL, perhaps several statements.
    pub async fn run(&self, sql: &str) {
        connect(&self.direct).await.batch_execute(sql).await.unwrap_or_else(|error| panic!("{error:?}"));
    }

    /// Takes locks by a statement and holds them until what it returns is dropped.
    pub async fn hold(&self, sql: &str) -> tokio_postgres::Client {
        let client = connect(&self.direct).await;
        client.batch_execute(&format!("BEGIN; {sql}")).await.unwrap_or_else(|error| panic!("{error:?}"));
        client
    }

    /// A column of texts from a query.
    pub async fn texts(&self, query: &str) -> Vec<String> {
        let rows = connect(&self.direct).await.query(query, &[]).await.expect("rows");
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Makes the store look like one of an older release, whose migrations had lower numbers.
    pub async fn look_older(&self) {
        let older = "UPDATE schema_migrations SET number = number - 1";
        connect(&self.direct).await.execute(older, &[]).await.expect("recorded migrations");
    }
}

async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("the private server answers");
    // Ends when the client is dropped.
    chassis::tasks::Tasks::new().spawn("postgres connection", connection);
    client
}
