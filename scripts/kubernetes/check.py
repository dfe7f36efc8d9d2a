"""Checks what schemas do not see: that the objects of a rendered overlay fit each other, the program and the page about them.

    check.py ROOT NAME RENDERED [HELP]

ROOT is the top of the repository, NAME stands in messages, RENDERED has the objects as YAML, HELP is the output of `tidemill run --help`. Prints a
line for each thing that is wrong, and ends with 1 if there is one.
"""

import json
import pathlib
import re
import subprocess
import sys

import yaml

SIZES = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def size(text):
    number, unit = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", str(text)).groups()
    return int(number) * SIZES[unit]


def seconds(path, name):
    """Returns a duration that the source of the program has as a constant."""
    text = path.read_text() if path.exists() else ""
    found = re.search(rf"const {name}: Duration = Duration::from_secs\((\d+)\);", text)
    if not found:
        sys.exit(f"{path}: has no constant {name} any more, with which times of the manifests are compared: correct scripts/kubernetes/check.py")
    return int(found[1])


def secrets_of_user(page):
    """Returns the keys of the Secrets that the page tells the user to make: rows as `| `tidemill-store` | `KEY`, `KEY` | …`."""
    rows = re.findall(r"^\| `(tidemill-[a-z-]+)` \| ([^|]+) \|", page, re.MULTILINE)
    return {name: set(re.findall(r"`([^`]+)`", keys)) for name, keys in rows}


class Objects:
    def __init__(self, root, rendered):
        self.problems = []
        self.root = root
        self.page = (root / "docs/kubernetes.md").read_text()
        self.paths = json.loads((root / "crates/server/openapi.json").read_text())["paths"]
        self.all = [one for one in yaml.safe_load_all(rendered) if one]
        self.nodes = self.only("StatefulSet")
        self.template = self.nodes["spec"]["template"]
        self.pod = self.template["spec"]
        self.labels = self.template["metadata"]["labels"]
        self.secrets = secrets_of_user(self.page)
        for certificate in self.of_kind("Certificate"):
            self.secrets[certificate["spec"]["secretName"]] = {"ca.crt", "tls.crt", "tls.key"}
        self.maps = {one["metadata"]["name"]: one.get("data", {}) for one in self.of_kind("ConfigMap")}
        self.used_maps, self.used_secrets = set(), set()

    def of_kind(self, kind):
        return [one for one in self.all if one["kind"] == kind]

    def only(self, kind):
        found = self.of_kind(kind)
        if len(found) != 1:
            sys.exit(f"expected one {kind}, found {len(found)}")
        return found[0]

    def wrong(self, text):
        self.problems.append(text)

    def expect(self, holds, text):
        if not holds:
            self.wrong(text)

    def containers(self):
        return self.pod.get("initContainers", []) + self.pod["containers"]

    def ports(self):
        """Returns the ports of the pod by name."""
        return {port["name"]: port["containerPort"] for one in self.containers() for port in one.get("ports", [])}

    def program(self):
        return next(one for one in self.pod["containers"] if one["name"] == "tidemill")

    def variables(self):
        """Returns the variables of the program: texts, or None for those of a field or a Secret."""
        found = {}
        for source in self.program().get("envFrom", []):
            if "configMapRef" in source:
                found |= self.maps.get(source["configMapRef"]["name"], {})
            if "secretRef" in source:
                found |= dict.fromkeys(self.secrets.get(source["secretRef"]["name"], ()))
        return found | {one["name"]: one.get("value") for one in self.program().get("env", [])}

    # --- Checks ---

    def check_names(self):
        seen = set()
        for one in self.all:
            name = (one["kind"], one["metadata"]["name"])
            self.expect(name not in seen, f"{name[0]} {name[1]} is there twice")
            seen.add(name)

    def check_selector(self, what, labels):
        self.expect(labels, f"{what}: selects all pods: give it labels")
        self.expect(
            (labels or {}).items() <= self.labels.items(),
            f"{what}: selects {labels}, and the pods have {self.labels}",
        )

    def check_selectors(self):
        matching = lambda one: one.get("matchLabels")
        self.check_selector("StatefulSet", matching(self.nodes["spec"]["selector"]))
        for constraint in self.pod.get("topologySpreadConstraints", []):
            self.check_selector("topologySpreadConstraints", matching(constraint["labelSelector"]))
        affinity = (self.pod.get("affinity") or {}).get("podAntiAffinity", {})
        for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution", []):
            self.check_selector("podAntiAffinity", matching(term["labelSelector"]))
        for one in self.of_kind("PodDisruptionBudget"):
            self.check_selector("PodDisruptionBudget", matching(one["spec"]["selector"]))
        for one in self.of_kind("Service"):
            self.check_selector(f"Service {one['metadata']['name']}", one["spec"].get("selector"))
        for policy in self.of_kind("NetworkPolicy"):
            self.check_selector("NetworkPolicy", matching(policy["spec"]["podSelector"]))
            for source in (source for rule in policy["spec"]["ingress"] for source in rule["from"]):
                # a rule for the nodes names their label; one for clients of all kinds names none
                if matching(source.get("podSelector", {})):
                    self.check_selector("NetworkPolicy, a rule for the nodes", matching(source["podSelector"]))

    def check_port(self, what, port):
        ports = self.ports()
        self.expect(port in ports or port in ports.values(), f"{what}: the port {port} is none of {ports}")

    def check_ports(self):
        ports = self.ports()
        self.expect(len(set(ports.values())) == len(ports), f"a port is there twice: {ports}")
        offered = set()
        for service in self.of_kind("Service"):
            name = service["metadata"]["name"]
            for port in service["spec"]["ports"]:
                self.check_port(f"Service {name}", port.get("targetPort", port["port"]))
                offered.add(port.get("targetPort", port["port"]))
                known = ports.get(port["name"])
                self.expect(
                    known in (None, port["port"]),
                    f"Service {name}: the port {port['name']} is {port['port']}, and {known} in the pod",
                )
        allowed = set()
        for policy in self.of_kind("NetworkPolicy"):
            for port in (port for rule in policy["spec"]["ingress"] for port in rule["ports"]):
                self.check_port("NetworkPolicy", port["port"])
                allowed.add(port["port"])
        for name in ports:
            self.expect(name in offered, f"the port {name} is that of no Service")
            self.expect(name in allowed, f"the port {name} is not let in by the NetworkPolicy")
        for container in self.containers():
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                if probe in container:
                    request = container[probe]["httpGet"]
                    self.check_port(probe, request["port"])
                    self.check_path(probe, request["path"])

    def check_path(self, what, path):
        self.expect("get" in self.paths.get(path, {}), f"{what}: the server has no route GET {path}")

    def check_volumes(self):
        claims = {one["metadata"]["name"] for one in self.nodes["spec"].get("volumeClaimTemplates", [])}
        volumes = [one["name"] for one in self.pod.get("volumes", [])]
        self.expect(len(set(volumes)) == len(volumes), f"a volume is there twice: {volumes}")
        self.expect(not claims & set(volumes), f"{claims & set(volumes)}: both a volume and a claim")
        mounted = {one["name"] for container in self.containers() for one in container.get("volumeMounts", [])}
        for name in mounted - claims - set(volumes):
            self.wrong(f"there is no volume {name}")
        for name in (claims | set(volumes)) - mounted:
            self.wrong(f"the volume {name} is not mounted")

    def check_map(self, what, name, keys):
        self.used_maps.add(name)
        if name not in self.maps:
            return self.wrong(f"{what}: there is no ConfigMap {name}")
        for key in set(keys) - self.maps[name].keys():
            self.wrong(f"{what}: the ConfigMap {name} has no key {key}")

    def check_secret(self, what, name, keys):
        self.used_secrets.add(name)
        if name not in self.secrets:
            return self.wrong(f"{what}: the Secret {name} is made by nothing, and docs/kubernetes.md does not tell the user to make it")
        for key in set(keys) - self.secrets[name]:
            self.wrong(f"{what}: the Secret {name} has no key {key} by docs/kubernetes.md or its certificate")

    def check_references(self):
        keys = lambda one: [item["key"] for item in one.get("items", [])]
        for volume in self.pod.get("volumes", []):
            what = f"volume {volume['name']}"
            if "configMap" in volume:
                self.check_map(what, volume["configMap"]["name"], keys(volume["configMap"]))
            if "secret" in volume:
                self.check_secret(what, volume["secret"]["secretName"], keys(volume["secret"]))
        for container in self.containers():
            what = f"container {container['name']}"
            for source in container.get("envFrom", []):
                if "configMapRef" in source:
                    self.check_map(what, source["configMapRef"]["name"], [])
                if "secretRef" in source:
                    self.check_secret(what, source["secretRef"]["name"], [])
            for one in container.get("env", []):
                source = one.get("valueFrom", {})
                if "configMapKeyRef" in source:
                    self.check_map(one["name"], source["configMapKeyRef"]["name"], [source["configMapKeyRef"]["key"]])
                if "secretKeyRef" in source:
                    self.check_secret(one["name"], source["secretKeyRef"]["name"], [source["secretKeyRef"]["key"]])
        script = next(one for one in self.containers() if one["name"] == "prepare")
        places = {volume["name"]: volume["secret"]["secretName"] for volume in self.pod["volumes"] if "secret" in volume}
        for mount in script["volumeMounts"]:
            if mount["name"] in places:
                files = re.findall(re.escape(mount["mountPath"]) + r"/([\w.-]+)", script["command"][-1])
                self.check_secret("the script of the init container", places[mount["name"]], files)
        for name in self.maps.keys() - self.used_maps:
            self.wrong(f"the ConfigMap {name} is not used")

    def check_monitors(self):
        for monitor in self.of_kind("ServiceMonitor"):
            labels = monitor["spec"]["selector"]["matchLabels"].items()
            services = [one for one in self.of_kind("Service") if labels <= one["metadata"].get("labels", {}).items()]
            self.expect(len(services) == 1, f"ServiceMonitor: selects {len(services)} Services instead of one")
            names = {port["name"] for one in services for port in one["spec"]["ports"]}
            for endpoint in monitor["spec"]["endpoints"]:
                self.expect(endpoint["port"] in names, f"ServiceMonitor: the port {endpoint['port']} is none of {sorted(names)}")
                self.check_path("ServiceMonitor", endpoint["path"])
                token = endpoint["authorization"]["credentials"]
                self.check_secret("ServiceMonitor", token["name"], [token["key"]])

    def check_certificates(self):
        issuers = {one["metadata"]["name"] for one in self.of_kind("Issuer")}
        nodes = {f"{self.nodes['metadata']['name']}-{number}" for number in range(self.nodes["spec"]["replicas"])}
        peers = [volume["secret"]["secretName"] for volume in self.pod["volumes"] if volume["name"] == "peers"]
        for certificate in self.of_kind("Certificate"):
            name, spec = certificate["metadata"]["name"], certificate["spec"]
            self.expect(spec["issuerRef"]["name"] in issuers, f"Certificate {name}: there is no Issuer {spec['issuerRef']['name']}")
            if spec["secretName"] in peers:
                for node in sorted(nodes - set(spec["dnsNames"])):
                    self.wrong(f"Certificate {name}: lacks the name of the node {node}")
                for usage in {"server auth", "client auth"} - set(spec["usages"]):
                    self.wrong(f"Certificate {name}: lacks the usage {usage}")

    def options(self):
        """Returns the options of the program with their values; variables are those of the pod."""
        arguments = [one for one in self.program()["args"] if one.startswith("--")]
        return dict((one.split("=", 1) + [""])[:2] for one in arguments)

    def check_program(self):
        options, variables, ports = self.options(), self.variables(), self.ports()
        for option, port in (("--listen", "http"), ("--postgres", "postgres"), ("--mongo", "mongodb"), ("--peers", "peers")):
            found = options.get(option, "")
            self.expect(found == f"0.0.0.0:{ports.get(port)}", f"{option} is {found}, and the port {port} is {ports.get(port)}")
        domain = f"$(TIDEMILL_NODE).{self.nodes['spec']['serviceName']}.$(POD_NAMESPACE).svc"
        for what, found, port in (
            ("--peers-advertise", options.get("--peers-advertise"), "peers"),
            ("TIDEMILL_ADVERTISE", variables.get("TIDEMILL_ADVERTISE"), "http"),
        ):
            self.expect(found == f"{domain}:{ports.get(port)}", f"{what} is {found}, expected {domain}:{ports.get(port)}")
        for name in ("TIDEMILL_CLUSTER", "TIDEMILL_STORE", "TIDEMILL_NODE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            self.expect(name in variables, f"the variable {name} is missing")
        texts = self.program()["args"] + [value for value in variables.values() if value]
        for name in {name for text in texts for name in re.findall(r"\$\(([A-Z_]+)\)", text)} - variables.keys():
            self.wrong(f"the variable {name} is used and not set")
        self.expect(self.pod.get("enableServiceLinks") is False, "enableServiceLinks must be false: its variables begin with TIDEMILL_")
        images = {one["image"] for one in self.containers()}
        self.expect(len(images) == 1, f"all containers have one image, and these have {sorted(images)}")
        headless = [one["metadata"]["name"] for one in self.of_kind("Service") if one["spec"].get("clusterIP") == "None"]
        self.expect(headless == [self.nodes["spec"]["serviceName"]], f"serviceName must be that of the headless Service, {headless}")
        script = next(one for one in self.containers() if one["name"] == "prepare")["command"][-1]
        parsed = subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True, check=False)
        self.expect(parsed.returncode == 0, f"the script of the init container: {parsed.stderr.strip()}")
        memory, limit = variables.get("TIDEMILL_SETTINGS__MEMORY"), self.program()["resources"]["limits"]["memory"]
        self.expect(
            memory and size(memory) <= size(limit) * 3 // 4,
            f"TIDEMILL_SETTINGS__MEMORY is {memory}: at most three quarters of the limit, {limit}",
        )

    def check_times(self):
        stop = seconds(self.root / "crates/tidemill/src/cli/stop_deadline.rs", "STOP_TIME_MAX")
        load = seconds(self.root / "crates/engine/src/engine/mod.rs", "LOAD_WAIT")
        pause = self.program()["lifecycle"]["preStop"]["sleep"]["seconds"]
        grace = self.pod["terminationGracePeriodSeconds"]
        self.expect(grace > pause + stop, f"terminationGracePeriodSeconds is {grace}: more than {pause} s of preStop and {stop} s of the program")
        probe = self.program()["startupProbe"]
        start = probe["periodSeconds"] * probe["failureThreshold"]
        self.expect(start > 2 * load, f"the startup probe ends the program after {start} s: expected more than twice the {load} s that it takes at most")

    def check_security(self):
        self.expect(self.pod["securityContext"].get("runAsNonRoot"), "the pod must not run as root")
        for container in self.containers():
            context = container.get("securityContext", {})
            is_safe = context.get("readOnlyRootFilesystem") and context.get("allowPrivilegeEscalation") is False
            self.expect(is_safe, f"container {container['name']}: its file system is writable, or it may get rights")
            self.expect("memory" in container["resources"]["limits"], f"container {container['name']}: has no memory limit")

    def check_help(self, text):
        """Checks that the program has the options and variables."""
        known_options = set(re.findall(r"--[a-z-]+", text))
        known_variables = set(re.findall(r"\[env: (TIDEMILL_[A-Z_]+)=?", text))
        for option in self.options().keys() - known_options:
            self.wrong(f"`tidemill run` has no option {option}")
        for name in self.variables().keys() - known_variables:
            if name.startswith("TIDEMILL_") and not name.startswith("TIDEMILL_SETTINGS__"):
                self.wrong(f"`tidemill run` does not read the variable {name}")


CHECKS = [
    Objects.check_names,
    Objects.check_selectors,
    Objects.check_ports,
    Objects.check_volumes,
    Objects.check_references,
    Objects.check_monitors,
    Objects.check_certificates,
    Objects.check_program,
    Objects.check_times,
    Objects.check_security,
]


def main():
    root, name, rendered = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    objects = Objects(root, rendered.read_text())
    for check in CHECKS:
        check(objects)
    if len(sys.argv) > 4:
        objects.check_help(pathlib.Path(sys.argv[4]).read_text())
    for problem in objects.problems:
        print(f"{name}: {problem}")
    sys.exit(1 if objects.problems else 0)


if __name__ == "__main__":
    main()
