//! Conflicts that Postgres reports as errors instead of a lost row: a Reserve that meets one looks again and answers.

use database::Clock;
use idem_core::Answer;
use idem_service::engine::Engine;

use super::bench::*;

/// Every write of a row goes through the tables' own mishap, which strikes once: what a sequence counts is not rolled back.
const MISHAP: &str = "
    CREATE SEQUENCE mishaps;
    CREATE FUNCTION mishap() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF nextval('mishaps') = 1 THEN
            RAISE EXCEPTION 'a mishap' USING ERRCODE = TG_ARGV[0];
        END IF;
        RETURN NEW;
    END $$;";

/// How often the mishap was met.
const MET: &str = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM mishaps";

#[tokio::test]
async fn a_conflict_that_the_server_reports_is_met_by_looking_again_on_postgres() {
    let serialization_failure = "40001";
    let deadlock = "40P01";
    let unique_violation = "23505";
    for code in [serialization_failure, deadlock, unique_violation] {
        let bench = Bench::postgres().await;
        let client = bench.postgres_client().await;
        bench.reserve(&key("held"), 1).await;
        bench.reserve(&key("completed"), 2).await;
        bench.step(&key("completed"), |r| completing(r, answer("x"))).await;
        client.batch_execute(MISHAP).await.unwrap();
        let arm = format!(
            "ALTER SEQUENCE mishaps RESTART;
             CREATE OR REPLACE TRIGGER mishap BEFORE INSERT OR UPDATE ON idem_keys
                FOR EACH ROW EXECUTE FUNCTION mishap('{code}')"
        );
        let engine = Engine::new(bench.store.clone(), Clock::system(), 0);
        for (n, name) in [(3, "absent"), (4, "held"), (5, "completed")] {
            client.batch_execute(&arm).await.unwrap();
            let outcome = engine.carry_out(&key(name), reserving(n), None).await;
            let answer = outcome.unwrap_or_else(|error| panic!("{code} on {name}: {error:?}")).answer;
            match name {
                "absent" => assert!(matches!(answer, Answer::Granted(_)), "{code}: {answer:?}"),
                "held" => assert_eq!(answer, Answer::InProgress, "{code}"),
                _ => assert!(matches!(answer, Answer::Replay(_)), "{code}: {answer:?}"),
            }
            let met: i64 = client.query_one(MET, &[]).await.unwrap().get(0);
            assert!(met >= 1, "{code} on {name} met no mishap");
        }
        assert_eq!(number(&bench.load(&key("absent")).await), 1, "{code}: reserved once");
    }
}
