use super::*;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn options(settings: &[(&str, &str)], environment: &[(&str, &str)]) -> Result<Vec<(String, String)>> {
    store_options("s3://bucket/tables", &map(settings), map(environment).into_iter())
}

/// Returns the value of an option that wins.
fn value<'o>(options: &'o [(String, String)], name: &str) -> Option<&'o str> {
    let key = AmazonS3ConfigKey::from_str(name).unwrap();
    let same = |(name, _): &&(String, String)| AmazonS3ConfigKey::from_str(name).is_ok_and(|k| k == key);
    options.iter().rfind(same).map(|(_, value)| value.as_str())
}

#[test]
fn settings_win_over_the_file_and_the_file_over_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("credentials.toml");
    std::fs::write(&file, "access_key_id = \"of the file\"\nsecret_access_key = \"of the file\"\n").unwrap();
    let environment = [
        ("AWS_ACCESS_KEY_ID", "of the environment"),
        ("AWS_SECRET_ACCESS_KEY", "of the environment"),
        ("AWS_ENDPOINT", "http://127.0.0.1:1"),
        ("AWS_REGION", "eu-1"),
        ("AWS_PAGER", "less"),
        ("GOOGLE_BUCKET", "another"),
    ];
    let alone = options(&[], &environment).unwrap();
    assert_eq!(value(&alone, "secret_access_key"), Some("of the environment"));
    assert_eq!(alone.len(), 5, "what the store knows, and that it is plain HTTP");
    let settings = [("endpoint", "http://127.0.0.1:2"), ("credentials_file", file.to_str().unwrap())];
    let all = options(&settings, &environment).unwrap();
    assert_eq!(value(&all, "secret_access_key"), Some("of the file"));
    assert_eq!(value(&all, "endpoint"), Some("http://127.0.0.1:2"));
    assert_eq!(value(&all, "region"), Some("eu-1"));
}

#[test]
fn messages_say_what_to_write_and_contain_no_secret() {
    let refused = |settings: &[(&str, &str)]| options(settings, &[]).unwrap_err().to_string();
    let message = refused(&[("secret_access_key", "hunter2")]);
    assert!(message.contains("AWS_SECRET_ACCESS_KEY") && message.contains("credentials_file"), "{message}");
    assert!(!message.contains("hunter2"), "{message}");
    let message = refused(&[("endpont", "http://x")]);
    assert!(message.contains("endpont") && message.contains("Did you mean `endpoint`"), "{message}");
    let message = refused(&[("credentials_file", "/no/such/file")]);
    assert!(message.contains("/no/such/file"), "{message}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("credentials.toml");
    std::fs::write(&file, "secret_access_key = hunter2\n").unwrap();
    let message = options(&[("credentials_file", file.to_str().unwrap())], &[]).unwrap_err();
    let message = format!("{message} {message:?}");
    assert!(message.contains("secret_access_key = \"…\"") && !message.contains("hunter2"), "{message}");
    let local = check_store_settings("/var/tables", &map(&[("endpoint", "x")])).unwrap_err().to_string();
    assert!(local.contains("s3://bucket/prefix"), "{local}");
}

#[test]
fn urls_without_a_store_or_with_credentials_are_refused() {
    let refuse = |url: &str| open_remote(&Url::parse(url).unwrap(), &[]).unwrap_err().to_string();
    let message = refuse("s3://me:hunter2@bucket/tables");
    assert!(message.contains("AWS_SECRET_ACCESS_KEY") && !message.contains("hunter2"), "{message}");
    assert!(refuse("https://example.com/tables").contains("s3://"));
}

#[test]
fn an_endpoint_says_whether_it_is_plain_http() {
    let options = |pairs: &[(&str, &str)]| with_plain_http(map(pairs).into_iter().collect());
    assert_eq!(value(&options(&[("aws_endpoint", "http://x")]), "allow_http"), Some("true"));
    assert_eq!(value(&options(&[("endpoint", "https://x")]), "allow_http"), None);
    let refused = options(&[("endpoint", "http://x"), ("allow_http", "false")]);
    assert_eq!(value(&refused, "allow_http"), Some("false"));
}
