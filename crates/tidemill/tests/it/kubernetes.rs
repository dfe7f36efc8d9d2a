//! Manifests for Kubernetes fit its schemas, each other and the program, by `scripts/kubernetes.sh`.

use std::path::Path;
use std::process::Command;

use crate::{copy, root};

/// Mistakes that the schemas see: file, text, what takes its place, and what the script says.
const AGAINST_SCHEMAS: [(&str, &str, &str, &str); 2] = [
    (
        "base/nodes.yaml",
        "serviceName: ",
        "servicename: ",
        "base: StatefulSet tidemill is invalid: problem validating schema",
    ),
    (
        "components/cert-manager/certificates.yaml",
        "size: 256, encoding: PKCS8",
        "size: large, encoding: PKCS8",
        "zones with all components: Certificate tidemill-peers is invalid",
    ),
];

/// Mistakes of objects that the schemas allow, in the same form.
const BETWEEN_OBJECTS: [(&str, &str, &str, &str); 19] = [
    (
        "base/nodes.yaml",
        "secretName: tidemill-access",
        "secretName: tidemill-acess",
        "base: volume access: the Secret tidemill-acess is made by nothing",
    ),
    ("base/nodes.yaml", "key: tls.key,", "key: tls.pem,", "the Secret tidemill-peers has no key tls.pem"),
    (
        "base/nodes.yaml",
        "name: tidemill-app\n",
        "name: tidemill-apps\n",
        "volume app: there is no ConfigMap tidemill-apps",
    ),
    ("base/nodes.yaml", "- {name: app, mountPath", "- {name: ap, mountPath", "there is no volume ap\n"),
    ("base/nodes.yaml", "path: /readyz", "path: /health/ready", "the server has no route GET /health/ready"),
    (
        "base/nodes.yaml",
        "--peers=0.0.0.0:4702",
        "--peers=0.0.0.0:4703",
        "--peers is 0.0.0.0:4703, and the port peers is 4702",
    ),
    ("base/nodes.yaml", "--replicas=2", "--replica=2", "`tidemill run` has no option --replica\n"),
    (
        "base/nodes.yaml",
        "name: TIDEMILL_ZONE",
        "name: TIDEMILL_AREA",
        "`tidemill run` does not read the variable TIDEMILL_AREA",
    ),
    (
        "base/nodes.yaml",
        "enableServiceLinks: false",
        "enableServiceLinks: true",
        "enableServiceLinks must be false",
    ),
    (
        "base/nodes.yaml",
        "terminationGracePeriodSeconds: 30",
        "terminationGracePeriodSeconds: 12",
        "terminationGracePeriodSeconds is 12: more than 5 s of preStop and 10 s of the program",
    ),
    ("base/nodes.yaml", "failureThreshold: 60", "failureThreshold: 20", "ends the program after 100 s"),
    (
        "base/services.yaml",
        "targetPort: postgres",
        "targetPort: postgresql",
        "Service tidemill: the port postgresql is none of",
    ),
    (
        "base/policies.yaml",
        "selector:\n    matchLabels:\n      app.kubernetes.io/name: tidemill",
        "selector:\n    matchLabels:\n      app.kubernetes.io/name: tide",
        "PodDisruptionBudget: selects {'app.kubernetes.io/name': 'tide'}",
    ),
    ("base/policies.yaml", "- {port: mongodb}", "", "the port mongodb is not let in by the NetworkPolicy"),
    ("base/options.env", "MEMORY=6GiB", "MEMORY=7GiB", "TIDEMILL_SETTINGS__MEMORY is 7GiB"),
    ("base/app/orders.rules", "entity Total", "entity Totals", "app: error"),
    ("certificates.sh", "serverAuth,clientAuth", "serverAuth", "certificates.sh: error"),
    (
        "components/cert-manager/certificates.yaml",
        "    - tidemill-5\n",
        "",
        "zones with all components: Certificate tidemill-peers: lacks the name of the node tidemill-5",
    ),
    (
        "components/service-monitor/service-monitor.yaml",
        "port: http",
        "port: metrics",
        "ServiceMonitor: the port metrics is none of",
    ),
];

/// Checks the manifests in a directory. Returns what the script prints, and whether they are good. `None`, with a message, where its tools cannot
/// be had.
fn check(manifests: &Path) -> Option<(String, bool)> {
    let mut script = Command::new(root().join("scripts/kubernetes.sh"));
    let output = script.args(["--program", env!("CARGO_BIN_EXE_tidemill")]).arg(manifests).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (lines, errors) = (text(&output.stdout), text(&output.stderr));
    match output.status.code() {
        Some(3) => {
            println!("skipped: {errors}");
            None
        }
        Some(code @ (0 | 1)) => Some((format!("{lines}{errors}"), code == 0)),
        code => panic!("exit code {code:?}\n{lines}{errors}"),
    }
}

#[test]
fn manifests_fit_kubernetes_each_other_and_the_program() {
    let Some((lines, is_good)) = check(&root().join("contrib/kubernetes")) else { return };
    assert!(is_good, "{lines}");
    for name in [
        "base",
        "small",
        "zones",
        "small with all components",
        "zones with all components",
        "app",
        "certificates.sh",
    ] {
        assert!(lines.contains(&format!("{name}: ")), "{name} is not checked:\n{lines}");
    }
}

#[test]
fn mistakes_in_manifests_are_found() {
    for mistakes in [&AGAINST_SCHEMAS[..], &BETWEEN_OBJECTS[..]] {
        let dir = tempfile::tempdir().unwrap();
        copy(&root().join("contrib/kubernetes"), dir.path());
        for (file, from, to, _) in mistakes {
            let path = dir.path().join(file);
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains(from), "{file} has no `{from}`");
            std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        }
        let Some((lines, is_good)) = check(dir.path()) else { return };
        assert!(!is_good, "{lines}");
        for (file, from, to, message) in mistakes {
            let is_found = lines.contains(message) || lines.contains(&format!("{file}: skipped"));
            assert!(is_found, "{file}, `{to}` for `{from}`: expected `{message}` in\n{lines}");
        }
    }
}
