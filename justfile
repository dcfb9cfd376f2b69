# `just` lists what can be done here.
default:
    @just --list

# Format every crate
fmt:
    cargo fmt --all

# Lints, as CI sees them
lint:
    cargo clippy --workspace --all-targets --locked -- -D warnings

# Unit and SQLite tests, without Postgres
test:
    cargo nextest run --workspace -E 'not test(postgres)'

# The tests that need Postgres, on a private server
test-postgres:
    eval "$(tests/postgres start)" && cargo nextest run --workspace -E 'test(postgres)'

# The tests that need Postgres, behind pgbouncer in transaction mode
test-pgbouncer:
    tests/behind-pgbouncer

# What a stranger can send, with this many inputs for each target
fuzz cases="100000":
    eval "$(tests/postgres start)" && PROPTEST_CASES={{cases}} cargo test -p fuzz --tests

# Buys under faults, and checks what came of it: `just faults --duration 10m --store sqlite`
faults *args:
    cargo build --workspace --bins && cargo run -p faults -- {{args}}

# The product beside what it is compared with: `just load run orders-hot`, `just load curve --svg curve.svg`
load *args:
    cargo build --release --workspace --bins && target/release/load {{args}}

# Every promise about speed, within a quarter of an hour; `just bars --full` thoroughly
bars *args:
    cargo build --release --workspace --bins && target/release/load bars {{args}}

# Kubernetes manifests against strict schemas, and against what the programs say of themselves
manifests:
    cargo build --workspace --bins && tests/manifests

# The production overlay as pods of podman, rolled and killed under load; builds images first
cluster:
    tests/cluster

# Breaks promises on purpose, and sees whether the campaign of faults notices
sabotage *names:
    tests/sabotage {{names}}

# Licences, sources and known vulnerabilities of what is linked, and a bill of materials
supply-chain:
    tests/supply-chain

# The whole system in one process
run *args:
    cargo run -- {{args}}

# The session of the README, against a running system
demo:
    tests/readme-session

# What operators see, against a real collector and a real Prometheus: spans, links, series, and every alert fired once
observed *args:
    cargo build --workspace --bins && tests/observed {{args}}

# Where the operator's console is
console:
    @echo "http://127.0.0.1:7002/ while the system runs"

# Lint the proto files
proto:
    npm install --silent --no-fund --no-audit --prefix target/tools @bufbuild/buf@1.75.0 >/dev/null
    cd proto && ../target/tools/node_modules/.bin/buf lint

# Everything CI runs
ci:
    .ci/run
