//! A small table through all of `peers disk`: each engine in a process and a control group of its own, closed loops, open
//! loops, and the check of all rows. Without root there is no control group, and nothing to test.

use std::process::Command;

use serde_json::Value as Json;

const ENGINES: [&str; 4] = ["rialto", "lmdb", "fjall", "bare"];
const ROUNDS: usize = 2;

/// The groups of a run that are there now.
fn groups(process: u32) -> Vec<String> {
    let all = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"]
        .into_iter()
        .filter_map(|root| std::fs::read_dir(root).ok());
    let names = all.flatten().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&format!("peers-{process}-"))).collect()
}

#[test]
fn a_small_table_adds_up_in_every_engine_within_its_memory() {
    let data = std::env::temp_dir().join(format!("peers-disk-run-{}", std::process::id()));
    let child = Command::new(env!("CARGO_BIN_EXE_peers"))
        .args(["disk", "--rows", "20000", "--memory-bytes", "134217728", "--clients", "4"])
        .args(["--seconds", "0.3", "--rounds", &ROUNDS.to_string(), "--json"])
        .args(["--engines", &ENGINES.join(",")])
        .arg("--data")
        .arg(&data)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let process = child.id();
    let output = child.wait_with_output().unwrap();
    std::fs::remove_dir_all(&data).unwrap();
    assert_eq!(groups(process), [""; 0]);
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if errors.contains("error: making a group") && errors.contains("needs root") {
        println!("skipped: {errors}");
        return;
    }
    assert!(output.status.success(), "{}: {errors}", output.status);
    assert!(text.contains("rialto : lmdb"), "{text}");
    let json: Json = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(json["consistent"], Json::Bool(true));
    assert_eq!(json["ratios"].as_array().unwrap().len(), ENGINES.len() - 1);
    for (engine, name) in json["engines"].as_array().unwrap().iter().zip(ENGINES) {
        assert_eq!(engine["engine"], name);
        assert!(engine["per_s"]["median"].as_f64().unwrap() > 0.0, "{engine}");
        assert_eq!(engine["slices"].as_array().unwrap().len(), ROUNDS);
        assert_eq!(engine["half"]["slices"].as_array().unwrap().len(), ROUNDS);
        assert!((1..=134_217_728).contains(&engine["peak_bytes"].as_u64().unwrap()), "{engine}");
        assert!(engine["problem"].is_null(), "{engine}");
    }
}
