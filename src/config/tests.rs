//! Tables of files and what becomes of them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;

const STREAM: &str = "[[stream]]\nname = \"r\"\nschema = { type = \"object\", properties = { i = { type = \"integer\" } }, required = [\"i\"] }\n";

fn parse(text: &str) -> Result<Config, ConfigError> {
    file::parse(Path::new("/etc/s/streamcast.toml"), text)
}

fn parsed(text: &str) -> Config {
    parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn refusal(text: &str) -> String {
    let error = parse(text).expect_err(text).to_string();
    error.strip_prefix("/etc/s/streamcast.toml:").map_or(error.clone(), str::to_owned)
}

#[test]
fn an_empty_file_is_the_default() {
    assert_eq!(parsed(""), Config::default());
    assert_eq!(parsed("# nothing\n"), Config::default());
}

#[test]
fn every_key_arrives() {
    let config = parsed(
        r#"
        listen = "localhost:0"
        root = "rows"
        cores = "0-3, 6"
        writer_core = 7
        background_cores = "all"
        transport_max_bytes = 0x10_0000
        keepalive_ping_s = 5
        keepalive_timeout_s = 3
        stats = "/s/t"
        group_rows = 5
        keep_awake = false
        max_connections = 10
        max_backlog_bytes = 2_000_000
        max_inbound_bytes = 3_000_000
        reader_threads = 4
        stop_timeout_s = 1
        insecure = true
        log = { level = "debug", json = true }
        auth = { policy = "policy.toml", keys = "/k/keys.json" }
        tls = { cert = "c.pem", key = "k.pem", client_ca = "ca.pem", kernel = "auto" }
        [[stream]]
        name = "a b é"
        schema = { properties = { z = { type = "string" }, a = { type = "integer" } }, required = ["z", "a"] }
        exactly_once = true
        group_commit = false
        sort_by = ["a", "z"]
        max_replay = 0
        slow = "replay"
        [stream.limits]
        max_backlog = 1
        max_inbound = 2
        max_in_flight = 3
        max_message_bytes = 4
        [[stream]]
        name = ""
        max_replay = false
    "#,
    );
    let mut first = StreamConfig::new(
        "a b é",
        Some(json!({"properties": {"z": {"type": "string"}, "a": {"type": "integer"}}, "required": ["z", "a"]})),
    );
    first.exactly_once = true;
    first.group_commit = false;
    first.sort_by = vec!["a".into(), "z".into()];
    first.max_replay = Some(0);
    first.slow = Slow::Replay;
    first.limits =
        Limits { max_backlog_frames: 1, max_inbound_rows: 2, max_in_flight_frames: 3, max_message_bytes: Some(4) };
    let mut second = StreamConfig::new("", None);
    second.max_replay = None;
    let expected = Config {
        listen: ([127, 0, 0, 1], 0).into(),
        root: PathBuf::from("/etc/s/rows"),
        cores: CoreRequest { cores: Some("0-3, 6".into()), writer_core: Some(7), background_cores: Some("all".into()) },
        transport_max_bytes: 1 << 20,
        keepalive: Keepalive { ping: Duration::from_secs(5), timeout: Duration::from_secs(3) },
        stats: Stats::At("/s/t".into()),
        group_rows: 5,
        keep_awake: false,
        max_connections: 10,
        max_backlog_bytes: 2_000_000,
        max_inbound_bytes: 3_000_000,
        reader_threads: Some(4),
        stop_timeout: Duration::from_secs(1),
        insecure: true,
        auth: Auth { policy: Some("/etc/s/policy.toml".into()), keys: Some("/k/keys.json".into()) },
        tls: Tls {
            cert: Some("/etc/s/c.pem".into()),
            key: Some("/etc/s/k.pem".into()),
            client_ca: Some("/etc/s/ca.pem".into()),
            kernel: KernelUse::Auto,
        },
        log: Log { level: LogLevel::Debug, json: Some(true) },
        registry: None,
        control_listen: None,
        s3: S3::default(),
        lake: Lake::default(),
        streams: vec![first, second],
    };
    assert_eq!(config, expected);
    assert!(config.streams[0].durable && !config.streams[1].durable);
    let order: Vec<_> = config.streams[0].schema.iter().flat_map(|s| s["properties"].as_object()).flatten().collect();
    assert_eq!(order.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["z", "a"]);
}

#[test]
fn short_forms_mean_the_same() {
    for (text, stats) in [
        ("stats = true", Stats::At("/stats".into())),
        ("stats = false", Stats::Off),
        ("stats = \"/x\"", Stats::At("/x".into())),
    ] {
        assert_eq!(parsed(text).stats, stats);
    }
    assert_eq!(parsed("log = \"warn\"").log, Log { level: LogLevel::Warn, json: None });
    assert_eq!(parsed("[log]\njson = true").log, Log { level: LogLevel::Info, json: Some(true) });
    assert_eq!(parsed("cores = 0").cores.cores.as_deref(), Some("0"));
    for (text, rows) in [("false", None), ("\"unbounded\"", None), ("7", Some(7))] {
        assert_eq!(parsed(&format!("{STREAM}max_replay = {text}")).streams[0].max_replay, rows);
    }
    let json = "[[stream]]\nname = \"r\"\nschema = '''{\"properties\": {\"z\": {\"type\": [\"string\", \"null\"]}, \"a\": {\"type\": [\"string\", \"null\"]}}}'''";
    let tables = "[[stream]]\nname = \"r\"\nschema.properties.z.type = [\"string\", \"null\"]\n[stream.schema.properties.a]\ntype = [\"string\", \"null\"]";
    assert_eq!(parsed(json).streams, parsed(tables).streams);
    let live = format!("{STREAM}durable = false");
    assert!(!parsed(&live).streams[0].durable && parsed(&live).streams[0].schema.is_some());
}

#[test]
fn the_example_is_the_default_with_three_streams() {
    let config = parsed(EXAMPLE);
    let names: Vec<_> = config.streams.iter().map(|stream| stream.name.as_str()).collect();
    assert_eq!(names, ["trades", "orders", "live"]);
    let expected = |stream: &StreamConfig| StreamConfig::new(stream.name.clone(), stream.schema.clone());
    assert_eq!(config.streams, config.streams.iter().map(expected).collect::<Vec<_>>());
    assert_eq!(Config { streams: Vec::new(), ..config }, Config::default());
}

/// Every value the example shows in a comment is the default, and every key is known.
#[test]
fn the_examples_comments_show_the_defaults() {
    let mut shown = EXAMPLE.replace("\n#stats = true", "\nstats = true");
    for line in EXAMPLE.lines().filter(|line| line.starts_with('#') && !line.starts_with("# ")) {
        let chosen = ["#cores", "#writer_core", "#background_cores", "#control_listen", "#reader_threads"];
        if !chosen.iter().any(|key| line.starts_with(key)) {
            shown = shown.replacen(line, &line[1..], 1);
        }
    }
    let (shown, plain) = (parsed(&shown), parsed(EXAMPLE));
    assert_eq!(shown.streams[1].limits.max_message_bytes, Some(1 << 20));
    let mut streams = shown.streams.clone();
    streams[1].limits.max_message_bytes = None;
    assert_eq!(streams[1].published.take().as_deref(), Some("s3://bucket/prefix"));
    assert_eq!(shown.s3.path_style, Some(true));
    assert!(shown.s3.endpoint.is_some() && shown.s3.region.is_some() && shown.s3.profile.is_some());
    assert_eq!(shown.log, Log { level: LogLevel::Info, json: Some(false) });
    let (root, log) = (PathBuf::from("data"), Log::default());
    assert_eq!(shown.root, Path::new("/etc/s/data"));
    let registry = shown.registry.expect("a registry");
    let bounds = (registry.broker_id, registry.control_max_bytes, registry.max_pending);
    let usual = Registry::default();
    assert_eq!(bounds, (usual.broker_id, usual.control_max_bytes, usual.max_pending));
    assert_eq!(registry.profiles[0], StorageProfile::default());
    assert_eq!(registry.profiles[1].published.as_deref(), Some("s3://bucket/prefix"));
    assert_eq!(registry.history_guards[0].known_row, serde_json::json!({"id": 1}));
    assert_eq!(shown.auth.policy, Some("/etc/s/policy.toml".into()));
    assert_eq!(shown.tls.client_ca, Some("/etc/s/client-ca.pem".into()));
    let (auth, tls) = (Auth::default(), Tls::default());
    assert_eq!(Config { streams, root, log, auth, tls, registry: None, s3: S3::default(), ..shown }, plain);
}

/// The documentation has a row for every key of the example.
#[test]
fn every_key_is_documented() {
    let documentation = include_str!("../../docs/operations.md");
    let keys = EXAMPLE.lines().filter_map(|line| {
        let (key, _) = line.trim_start_matches('#').split_once(" = ")?;
        (line.starts_with('#') && !key.contains(' ')).then_some(key)
    });
    let keys: Vec<&str> = keys.collect();
    assert!(keys.len() > 20, "{keys:?}");
    for key in keys {
        let documented =
            ["", "limits.", "auth.", "tls."].iter().any(|table| documentation.contains(&format!("`{table}{key}`")));
        assert!(documented, "{key} is not in docs/operations.md");
    }
}

#[test]
fn errors_name_the_place_and_the_way_out() {
    let in_stream = |text: &str| format!("{STREAM}{text}");
    let json = |text: &str| format!("[[stream]]\nname = \"r\"\nschema = '''{text}'''");
    let table: &[(String, &str)] = &[
        ("lissen = \"x\"".into(), "1:1: unknown key `lissen` in the file; did you mean `listen`?"),
        ("\n\n  xyz = 1".into(), "3:3: unknown key `xyz` in the file; known keys are listen, root, cores,"),
        ("listen = \"8765\"".into(), "1:10: `8765` is no address to listen on; write ADDRESS:PORT"),
        ("listen = 8765".into(), "1:10: `listen` must be a string in quotes, not 8765"),
        ("root = \"\"".into(), "1:8: a path cannot be empty"),
        (
            "cores = \"one\"".into(),
            "1:9: `one` is not a list of cores: `one` is not a number; write numbers and ranges",
        ),
        ("cores = -1".into(), "1:9: `cores` must be"),
        ("registry = 1".into(), "1:12: `registry` must be a table, not 1"),
        ("[registry]\nbroker_id = \"\"".into(), "2:13: `broker_id` must have 1 to 128 bytes"),
        (
            "[registry]\nmax_pendin = 1".into(),
            "2:1: unknown key `max_pendin` in [registry]; did you mean `max_pending`?",
        ),
        ("[registry.profiles]".into(), "1:2: [registry.profiles] names no profile"),
        ("[registry.profiles.a]".into(), "1:1: the profile `a` has no `revision`"),
        (
            "[registry.profiles.a]\nrevision = \"1\"\npublished = \"/x\"".into(),
            "3:13: `published` must be a place such as",
        ),
        ("[registry.history_guards.a]\nknown_offset = 0".into(), "2:16: `known_offset` must be"),
        ("[registry.history_guards.a]\nknown_offset = 1".into(), "1:1: the guard of `a` needs"),
        ("control_listen = \"x\"".into(), "1:18: `x` is no address to listen on"),
        ("listen = \"::1\"\nlisten = \"::1\"".into(), "2:1: not valid TOML: duplicate key"),
        ("writer_core = \"7\"".into(), "1:15: `writer_core` must be a whole number from 0 to 8191, not the string"),
        ("group_rows = 0".into(), "1:14: `group_rows` must be a whole number of rows from 1 to 1000000, not 0"),
        ("group_rows = \"many\"".into(), "1:14: `group_rows` must be a whole number of rows"),
        ("transport_max_bytes = 99999999999999999999999".into(), "1:23: `transport_max_bytes` must be"),
        (
            "keepalive_ping_s = nan".into(),
            "1:20: `keepalive_ping_s` must be a whole number of seconds from 1 to 86400, not nan",
        ),
        ("keepalive_ping_s = -1".into(), "1:20: `keepalive_ping_s` must be"),
        ("stats = \"/\"".into(), "1:9: `stats` must be true, false, or an absolute path"),
        ("stats = \"stats\"".into(), "1:9: `stats` must be"),
        ("auth = 1".into(), "1:8: `auth` must be a table of files, not 1"),
        ("[auth]".into(), "1:1: [auth] names no file; give `policy`, `keys` or both"),
        ("[tls]\nkernel = \"on\"".into(), "2:10: `kernel` must be \"auto\" or \"off\", not the string \"on\""),
        ("[tls]\ncert = \"c\"".into(), "1:1: [tls] needs both `cert` and `key`"),
        ("insecure = 1".into(), "1:12: `insecure` must be true or false, not 1"),
        (
            "log = \"debgu\"".into(),
            "1:7: `debgu` is no log level: they are error, warn, info, debug, trace; did you mean `debug`?",
        ),
        ("log = { levle = \"info\" }".into(), "1:9: unknown key `levle` in [log]; did you mean `level`?"),
        ("log = 3".into(), "1:7: `log` must be a level or a table"),
        ("a = ".into(), "1:5: not valid TOML: "),
        ("[stream]\nname = \"r\"".into(), "1:1: each stream is a table of its own: begin it with [[stream]]"),
        ("stream = [1]".into(), "1:11: each stream is a table of its own"),
        ("[[stream]]".into(), "1:1: this stream has no name; add `name ="),
        ("[[stream]]\nnaem = \"x\"".into(), "2:1: unknown key `naem` in a [[stream]]; did you mean `name`?"),
        (in_stream("\n[[stream]]\nname = \"r\""), "6:8: the stream `r` is already declared in line 2"),
        (
            in_stream("\n[[stream]]\nname = \"a/b\"\nschema.properties.i.type = \"string\""),
            "6:8: the stream name \"a/b\" contains '/'",
        ),
        ("[[stream]]\nname = \"\"\nschema.properties.i.type = \"string\"".into(), "2:8: a durable stream needs a name"),
        ("[[stream]]\nname = \"/a\"".into(), "2:8: requests lose the slashes in front of a name; call the stream `a`"),
        (format!("[[stream]]\nname = \"{}\"", "x".repeat(300)), "2:8: the stream name `xxxxxx"),
        ("[[stream]]\nname = \"r\"\ndurable = true".into(), "3:11: a durable stream needs a schema: add `schema` or"),
        ("[[stream]]\nname = \"r\"\nexactly_once = true".into(), "3:16: `exactly_once` needs a durable stream"),
        ("[[stream]]\nname = \"r\"\nslow = \"replay\"".into(), "3:8: `slow = \"replay\"` needs a durable stream"),
        (in_stream("slow = \"stop\""), "4:8: `slow` must be \"drop\" or \"replay\", not the string \"stop\""),
        (in_stream("sort_by = [\"j\"]"), "4:12: `j` in `sort_by` is no column of the schema"),
        (in_stream("sort_by = [\"i\", \"i\"]"), "4:17: `i` in `sort_by` is there twice"),
        (in_stream("sort_by = \"i\""), "4:11: `sort_by` must be an array of column names"),
        (in_stream("max_replay = -1"), "4:14: `max_replay` must be a whole number of rows, or \"unbounded\""),
        (in_stream("max_replay = true"), "4:14: `max_replay` must be"),
        (in_stream("limits = 3"), "4:10: `limits` must be a table"),
        (in_stream("[stream.limits]\nmax_backlog = 0"), "5:15: `max_backlog` must be a whole number of frames from 1"),
        (
            in_stream("[stream.limits]\nmax_message_bytes = 2000000"),
            "5:21: 2000000 bytes are more than any frame may have",
        ),
        (
            in_stream("[stream.limits]\nmax_replay = 1"),
            "5:1: unknown key `max_replay` in [stream.limits]; known keys are",
        ),
        (in_stream("schema_file = \"x.json\""), "4:15: there is a `schema` and a `schema_file`; keep one"),
        (
            "[[stream]]\nname = \"r\"\nschema_file = \"no/such.json\"".into(),
            "3:15: schema file /etc/s/no/such.json: cannot be read: No such file",
        ),
        ("[[stream]]\nname = \"r\"\nschema = 1".into(), "3:10: `schema` must be a table, or JSON in quotes, not 1"),
        ("[[stream]]\nname = \"r\"\nschema = { a = 1979-05-27 }".into(), "3:16: a date or time has no form in JSON"),
        ("[[stream]]\nname = \"r\"\nschema = { a = inf }".into(), "3:16: inf has no form in JSON"),
        ("[[stream]]\nname = \"r\"\nschema = {}".into(), "3:10: this schema is refused: "),
        (json("{\"properties\": {}}"), "3:10: this schema is refused: "),
        (
            json("{\"a\": 1,\n \"a\": 2}"),
            "3:10: this schema is not valid JSON (its line 2, column 4): the key \"a\" is there twice",
        ),
        (json("{"), "3:10: this schema is not valid JSON (its line 1, column 1): EOF"),
    ];
    for (text, expected) in table {
        let found = refusal(text);
        assert!(found.starts_with(expected), "{text}\n expected {expected}\n found    {found}");
    }
}

#[test]
fn schema_files_count_from_the_configuration_and_name_their_own_lines() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &[u8]| std::fs::write(directory.path().join(name), text).expect("a file");
    write("good.json", br#"{"properties": {"i": {"type": "integer"}}, "required": ["i"]}"#);
    write("bad.json", b"{\n \"properties\": }");
    write("latin.json", b"{\n \"\xff\": 1}");
    write("empty.json", b"{}");
    let path = directory.path().join("streamcast.toml");
    let load = |schema: &str| {
        write("streamcast.toml", format!("[[stream]]\nname = \"r\"\nschema_file = \"{schema}\"\n").as_bytes());
        let found = Config::load(&path);
        found.map_err(|error| error.to_string().replace(&*directory.path().to_string_lossy(), "D"))
    };
    assert!(load("good.json").is_ok_and(|config| config.streams[0].durable));
    for (schema, expected) in [
        ("bad.json", "D/bad.json:2:16: not valid JSON: expected value"),
        ("latin.json", "D/streamcast.toml:3:15: schema file D/latin.json:2:3: not UTF-8 text"),
        ("empty.json", "D/streamcast.toml:3:15: the schema in D/empty.json is refused: "),
        (".", "D/streamcast.toml:3:15: schema file D/.: cannot be read: "),
    ] {
        let found = load(schema).expect_err(schema);
        assert!(found.starts_with(expected), "{found}");
    }
    write("streamcast.toml", b"# \xc3\n");
    let error = Config::load(&path).expect_err("half a character").to_string();
    assert!(error.ends_with("streamcast.toml:1:3: not UTF-8 text; save the file as UTF-8"), "{error}");
}

#[test]
fn only_loopback_is_served_without_a_word() {
    for (listen, insecure, fine) in [
        ("127.0.0.1:1", false, true),
        ("[::1]:1", false, true),
        ("0.0.0.0:1", false, false),
        ("[::]:1", false, false),
        ("10.0.0.1:1", true, true),
    ] {
        let listen = parse_listen(listen).expect(listen);
        assert_eq!(Config { listen, insecure, ..Config::default() }.check().is_ok(), fine, "{listen}");
        let auth = Auth { policy: None, keys: Some("keys.json".into()) };
        assert!(Config { listen, auth, ..Config::default() }.check().is_ok(), "{listen}");
    }
    for (cert, key, client_ca, fine) in
        [(1, 1, 0, true), (1, 1, 1, true), (1, 0, 0, false), (0, 1, 0, false), (0, 0, 1, false)]
    {
        let path = |given| (given == 1).then(|| "x.pem".into());
        let tls = Tls { cert: path(cert), key: path(key), client_ca: path(client_ca), kernel: KernelUse::Auto };
        assert_eq!(Config { tls, ..Config::default() }.check().is_ok(), fine, "{cert} {key} {client_ca}");
    }
}

#[test]
fn a_root_that_is_a_file_is_refused() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let check = |root: PathBuf| Config { root, ..Config::default() }.check();
    for root in [file.path().to_owned(), file.path().join("below")] {
        let error = check(root).expect_err("not a directory").to_string();
        assert!(error.contains("no directory"), "{error}");
    }
    assert_eq!(check(file.path().with_extension("new")), Ok(()));
}

proptest! {
    #[test]
    fn any_text_is_judged_without_a_panic(text in "\\PC{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn any_bytes_are_judged_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&String::from_utf8_lossy(&bytes));
    }

    /// Damage to a good file: cut, doubled or replaced pieces still give a configuration or one error with a place.
    #[test]
    fn a_damaged_file_is_judged_with_a_place(at in 0..EXAMPLE.len(), cut in 0..40usize, put in "[a-z0-9=\\[\\]{}\"'.,#\n -]{0,12}") {
        let mut bytes = EXAMPLE.as_bytes().to_vec();
        let end = (at + cut).min(bytes.len());
        bytes.splice(at..end, put.into_bytes());
        let text = String::from_utf8_lossy(&bytes);
        if let Err(error) = parse(&text) {
            let (line, column) = error.position().expect("a place");
            let written = text.split('\n').nth(line - 1).map(|line| line.chars().count());
            prop_assert!(written.is_some_and(|width| column <= width + 1), "{}", error);
            prop_assert!(error.excerpt().is_some());
        }
    }
}
