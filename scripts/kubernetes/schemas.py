"""Makes JSON schemas for kubeconform out of the API's description and of definitions of custom resources.

    schemas.py OUT SWAGGER [DEFINITION.yaml…]

SWAGGER is `api/openapi-spec/swagger.json` of the source of Kubernetes. Writes a file for each kind, such as OUT/statefulset-apps-v1.json, which
refers to no other file. Fields that the API does not have are errors.
"""

import json
import pathlib
import sys

import yaml

# Types whose description says `string`, and whose text may be written as a number.
ALSO_NUMBERS = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["string", "integer"]},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["string", "number"]},
}


def strict(schema):
    """Returns a copy without descriptions, in which objects have no fields but those that they declare."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["string", "integer"]}
    copy = {}
    for key, value in schema.items():
        if key in ("properties", "definitions"):
            copy[key] = {name: strict(one) for name, one in value.items()}
        elif key in ("enum", "default", "required"):
            copy[key] = value
        elif key != "description" and not key.startswith("x-kubernetes-"):
            copy[key] = strict(value)
    if "properties" in copy and "additionalProperties" not in copy:
        copy["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    return copy


def names_in(schema):
    """Yields the definitions to which a schema refers."""
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].rsplit("/", 1)[1]
        for value in schema.values():
            yield from names_in(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from names_in(value)


def write(out, kind, group, version, schema):
    """Writes the schema of a kind, whose objects must say that they are of it."""
    schema["required"] = sorted({"apiVersion", "kind", *schema.get("required", [])})
    schema["properties"]["apiVersion"] = {"enum": [f"{group}/{version}" if group else version]}
    schema["properties"]["kind"] = {"enum": [kind]}
    # the name under which kubeconform looks for it
    parts = [kind.lower(), group.split(".")[0], version] if group else [kind.lower(), version]
    (out / ("-".join(parts) + ".json")).write_text(json.dumps(schema))


def of_api(out, swagger):
    definitions = {name: ALSO_NUMBERS.get(name) or strict(one) for name, one in swagger["definitions"].items()}
    for name, definition in swagger["definitions"].items():
        kinds = definition.get("x-kubernetes-group-version-kind", [])
        # those of several groups are options of requests
        if len(kinds) != 1 or "properties" not in definition:
            continue
        wanted, todo = {}, set(names_in(definitions[name]))
        while todo:
            one = todo.pop()
            wanted[one] = definitions[one]
            todo |= set(names_in(definitions[one])) - wanted.keys()
        schema = json.loads(json.dumps({**definitions[name], "definitions": wanted}))
        write(out, kinds[0]["kind"], kinds[0]["group"], kinds[0]["version"], schema)


def of_definition(out, resource, metadata):
    spec = resource["spec"]
    for version in spec["versions"]:
        schema = strict(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = metadata
        write(out, spec["names"]["kind"], spec["group"], version["name"], schema)


def main():
    out, swagger = pathlib.Path(sys.argv[1]), json.loads(pathlib.Path(sys.argv[2]).read_text())
    out.mkdir(parents=True, exist_ok=True)
    of_api(out, swagger)
    metadata = strict(swagger["definitions"]["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"])
    # who made an object is the business of the API
    for name in ("managedFields", "ownerReferences", "creationTimestamp", "deletionTimestamp"):
        del metadata["properties"][name]
    for path in sys.argv[3:]:
        for resource in yaml.safe_load_all(pathlib.Path(path).read_text()):
            if resource and resource["kind"] == "CustomResourceDefinition":
                of_definition(out, resource, metadata)


if __name__ == "__main__":
    main()
