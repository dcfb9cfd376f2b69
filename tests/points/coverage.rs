//! Every point that gateway layer and engine name is crossed by some scenario.

use std::{collections::BTreeSet, fs, path::Path};

use e2e::Store;
use fault_point::watch;

use crate::{ALL, every};

/// The rooms whose points are those of keyed requests.
const ROOMS: [&str; 2] = ["gateway/layer/src", "idem-service/src"];

/// What a holder says last, each at a call of its own.
const CLOSINGS: [&str; 3] = ["complete", "release", "abandon"];

fn named(directory: &Path, known: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            named(&path, known);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            for rest in text.split("fault_point!(\"").skip(1) {
                let name = rest.split('"').next().unwrap();
                match name.strip_prefix("{}") {
                    Some(at) => known.extend(CLOSINGS.map(|closing| format!("{closing}{at}"))),
                    None => drop(known.insert(name.to_owned())),
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_point_of_a_keyed_request_is_crossed_by_a_scenario() {
    let mut known = BTreeSet::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    ROOMS.iter().for_each(|room| named(&root.join(room), &mut known));
    assert!(known.len() >= 20, "the source names only {known:?}");

    let watch = watch();
    watch.stop();
    let world = every::world(Store::Sqlite).await;
    let mut crossed = BTreeSet::new();
    for scenario in ALL {
        crossed.extend(every::crossed(&world, &watch, *scenario).await.into_iter().map(|crossing| crossing.point));
    }
    world.stop().await;
    let missed: Vec<_> = known.difference(&crossed).collect();
    assert!(missed.is_empty(), "no scenario crosses {missed:?}");
}
