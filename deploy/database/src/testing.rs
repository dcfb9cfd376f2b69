//! Stores for tests: made empty, gone when dropped. Only with the feature `testing`.

use std::env;
use std::ops::Deref;
use std::thread;

use tempfile::TempDir;
use tokio::runtime;
use tokio_postgres::{Config, NoTls};
use uuid::Uuid;

use crate::{PostgresUrl, StoreUrl};

/// The variable with the `postgres://` address of a superuser on a private server, perhaps through a pooler.
const SERVER: &str = "IDEM_TEST_POSTGRES";

/// The address of the same server without a pooler, when the other one leads through one.
const DIRECT: &str = "IDEM_TEST_POSTGRES_DIRECT";

/// An empty store of a test's own; dropping it deletes it.
#[derive(Debug)]
pub struct Scratch {
    url: StoreUrl,
    keeper: Keeper,
}

#[derive(Debug)]
enum Keeper {
    Directory { _directory: TempDir },
    Server { admin: Box<PostgresUrl>, name: String },
}

/// A fresh database on the server of `IDEM_TEST_POSTGRES`, with `name` in its name.
///
/// # Panics
/// When the variable is unset or the server cannot be reached: a test that needs Postgres never skips.
pub async fn postgres_url(name: &str) -> Scratch {
    scratch(name, postgres_server(SERVER)).await
}

/// Like [`postgres_url`], and never through a pooler: for tests of what a session of its own keeps (settings, prepared statements,
/// defaults of its database), which behind a pooler in transaction mode belongs to nobody.
///
/// # Panics
/// As [`postgres_url`] does.
pub async fn direct_postgres_url(name: &str) -> Scratch {
    scratch(name, direct_server()).await
}

async fn scratch(name: &str, server: Box<PostgresUrl>) -> Scratch {
    // A pooler is no place to make databases.
    let admin = direct_server();
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    // Names end at 63 bytes, the random part is 32 of them.
    let name = format!("{:.30}_{}", plain, Uuid::new_v4().simple());
    run(&admin, &format!("CREATE DATABASE \"{name}\" TEMPLATE template0"))
        .await
        .expect("the test server makes databases");
    let mut config = server;
    config.dbname(&name);
    Scratch { url: StoreUrl::Postgres(config), keeper: Keeper::Server { admin, name } }
}

/// A fresh file in a directory of its own.
///
/// # Panics
/// When there is no place for temporary files.
pub fn sqlite_url() -> Scratch {
    let directory = TempDir::new().expect("temporary files can be made");
    let url = StoreUrl::Sqlite(directory.path().join("store.db"));
    Scratch { url, keeper: Keeper::Directory { _directory: directory } }
}

impl Scratch {
    /// Where the store is.
    pub fn url(&self) -> &StoreUrl {
        &self.url
    }

    /// The same store past any pooler, for the test's own eyes and hands.
    pub fn direct(&self) -> StoreUrl {
        match &self.keeper {
            Keeper::Directory { .. } => self.url.clone(),
            Keeper::Server { admin, name } => {
                let mut config = admin.clone();
                config.dbname(name);
                StoreUrl::Postgres(config)
            }
        }
    }
}

impl Deref for Scratch {
    type Target = StoreUrl;

    fn deref(&self) -> &StoreUrl {
        &self.url
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let Keeper::Server { admin, name } = &self.keeper else { return };
        let (admin, sql) = (admin.clone(), format!("DROP DATABASE IF EXISTS \"{name}\" WITH (FORCE)"));
        // A runtime of its own, since the test's may be the very one that is being dropped. A server that is gone has
        // nothing left to delete.
        let dropper = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            runtime.map(|runtime| runtime.block_on(run(&admin, &sql)))
        });
        let _ = dropper.join();
    }
}

fn postgres_server(variable: &str) -> Box<PostgresUrl> {
    let Ok(text) = env::var(variable) else {
        panic!("{variable} is not set: this test needs a private Postgres, see tests/postgres");
    };
    match text.parse() {
        Ok(StoreUrl::Postgres(config)) => config,
        _ => panic!("{variable} is not a postgres:// address"),
    }
}

fn direct_server() -> Box<PostgresUrl> {
    postgres_server(if env::var_os(DIRECT).is_some() { DIRECT } else { SERVER })
}

/// Runs one statement on a connection of its own.
async fn run(config: &Config, sql: &str) -> Result<(), tokio_postgres::Error> {
    let (client, connection) = config.connect(NoTls).await?;
    let work = async {
        let done = client.batch_execute(sql).await;
        drop(client);
        done
    };
    let (done, ended) = futures::join!(work, connection);
    done.and(ended)
}
