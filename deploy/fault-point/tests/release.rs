//! What a release build keeps of a point: nothing. Shown on an object file of a function with one, compiled both ways.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{fs, path::Path, process::Command};

/// A name that nothing else in an object file contains.
const NAME: &str = "zanzibar: departure";

const PROBE: &str = r#"
pub fn probe(arrived: bool) -> Result<u32, String> {
    fault_point::fault_point!("zanzibar: departure" => Err(format!("cancelled in {}", "mombasa")));
    fault_point::fault_point!("zanzibar: {}", u8::from(arrived));
    if arrived { Ok(7) } else { Err("late".to_owned()) }
}
"#;

/// Compiles this crate and a function with points for a profile, and gives the function's object file.
fn object(directory: &Path, debug_assertions: &str) -> Vec<u8> {
    let rustc = |arguments: &[&str]| {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let assertions = format!("debug-assertions={debug_assertions}");
        let done = Command::new(rustc)
            .args(["--edition=2024", "-Copt-level=1", "-C", &assertions, "-L", "."])
            .args(arguments)
            .current_dir(directory)
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    fs::write(directory.join("probe.rs"), PROBE).unwrap();
    let library = concat!(env!("CARGO_MANIFEST_DIR"), "/src/lib.rs");
    rustc(&["--crate-type=rlib", "--crate-name=fault_point", library]);
    let links = ["--extern", "fault_point=libfault_point.rlib"];
    rustc(&[&["--crate-type=rlib", "--emit=obj", "-Dwarnings", "-oprobe.o", "probe.rs"][..], &links].concat());
    fs::read(directory.join("probe.o")).unwrap()
}

fn contains(object: &[u8], text: &str) -> bool {
    object.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn a_release_build_has_no_trace_of_a_point() {
    let directory = tempfile::tempdir().unwrap();
    let debug = object(directory.path(), "on");
    for trace in [NAME, "fault_point", "mombasa"] {
        assert!(contains(&debug, trace), "a debug build has {trace}, so the next check can fail");
    }
    let release = object(directory.path(), "off");
    for trace in [NAME, "fault_point", "zanzibar", "mombasa"] {
        assert!(!contains(&release, trace), "a release build still has {trace}");
    }
    assert!(contains(&release, "late"), "and the function itself is there");
}
