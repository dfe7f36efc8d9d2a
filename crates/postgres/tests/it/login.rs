//! Logins by a real driver.

use std::sync::Arc;

use tidemill_access::{Access, AccessFile, Verifier};
use tidemill_postgres::PostgresOptions;
use tokio_postgres::{Config, NoTls};

use crate::fixture::Server;
use crate::raw::{Raw, show, startup};

fn config(server: &Server, user: &str, password: &str) -> Config {
    let mut config = Config::new();
    config.host("127.0.0.1").port(server.address.port()).user(user).password(password).dbname("tidemill");
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn users_log_in_with_their_passwords() {
    let dir = tempfile::tempdir().unwrap();
    let file = AccessFile::in_directory(dir.path());
    file.update(|accounts| accounts.add_user("ana", vec!["read".parse()?], Some(Verifier::new("of ana"))))
        .unwrap();
    let access = Arc::new(Access::open(file).unwrap());
    let options = PostgresOptions {
        password: Some("secret".to_owned()),
        access: Some(access),
        ..PostgresOptions::default()
    };
    let server = Server::start(options).await;
    for (user, password, is_right) in [
        ("admin", "secret", true),
        ("ana", "of ana", true),
        ("ana", "secret", false),
        ("eva", "x", false),
        ("admin", "", false),
    ] {
        let connected = config(&server, user, password).connect(NoTls).await;
        match connected {
            Ok((client, connection)) => {
                assert!(is_right, "{user} {password}");
                let connection = tokio::spawn(connection);
                let row = client.query_one("SELECT user", &[]).await.unwrap();
                assert_eq!(row.get::<_, &str>(0), user);
                drop(client);
                connection.await.unwrap().unwrap();
            }
            Err(error) => {
                let code = error.code().map(|code| code.code().to_owned());
                assert!(!is_right && code.as_deref() == Some("28P01"), "{user} {password}: {error:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_answered_before_the_login() {
    let options = PostgresOptions { password: Some("secret".to_owned()), ..PostgresOptions::default() };
    let server = Server::start(options).await;
    let mut raw = Raw::open(server.address).await;
    raw.send(&startup(0, &[("user", "admin")])).await;
    assert_eq!(show(&raw.reply().await.unwrap()), "Authentication 10");
    raw.send(&crate::raw::message('Q', b"SELECT rows 1\0")).await;
    let replies: Vec<String> = raw.until_ready().await.iter().map(show).collect();
    assert_eq!(replies.len(), 1, "{replies:?}");
    assert!(replies[0].starts_with("Error FATAL 08P01"), "{replies:?}");
}
