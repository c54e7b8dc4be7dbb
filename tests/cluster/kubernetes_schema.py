"""examples/kubernetes by the schemas that Kubernetes and Kubeflow publish, no unknown field allowed.

kubernetes_schema.py EXAMPLES. The Jobs: JSON schemas of Kubernetes' OpenAPI (PyPI: kubernetes-validate). The TrainJob: classes made of the OpenAPI of
Kubeflow's Trainer (PyPI: kubeflow-trainer-api), which leave unknown fields out: what comes back must be what went in. Exits 77, and says so, where
one of them is missing.
"""
import copy
import os
import sys

try:
    import kubernetes_validate
    import yaml
    from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob
except ImportError as error:
    print(f"left out: {error} (pip install kubernetes-validate kubeflow-trainer-api)")
    sys.exit(77)


def check(document):
    """Raises ValueError where the document is none of its kind."""
    if document["kind"] == "Job":
        try:
            kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
        except kubernetes_validate.ValidationError as error:
            raise ValueError(error.message) from error
    elif document["kind"] == "TrainJob":
        if TrainerV1alpha1TrainJob.from_dict(document).to_dict() != document:  # pydantic's ValidationError is a ValueError
            raise ValueError("unknown fields")
    else:
        raise ValueError("no schema for " + document["kind"])


def misspelt(document, path):
    """A copy with the last letter of the field at the path left out."""
    changed = copy.deepcopy(document)
    place = changed
    for name in path[:-1]:
        place = place[name]
    place[path[-1][:-1]] = place.pop(path[-1])
    return changed


def refused(document):
    try:
        check(document)
    except ValueError:
        return True
    return False


def main():
    examples = {}
    for name in sorted(os.listdir(sys.argv[1])):
        with open(os.path.join(sys.argv[1], name), encoding="utf-8") as file:
            for document in yaml.safe_load_all(file):
                check(document)
                examples[name] = document
    container = ["spec", "template", "spec", "containers", 0]
    node = ["spec", "runtimePatches", 0, "trainingRuntimeSpec", "template", "spec", "replicatedJobs", 0, "template", "spec", "template", "spec"]
    for name, path in (
        ("pack.yaml", ["spec", "completionMode"]),
        ("pack.yaml", ["spec", "template"]),
        ("pack.yaml", container + ["volumeMounts"]),
        ("merge.yaml", container + ["image"]),
        ("trainjob.yaml", ["spec", "runtimeRef"]),
        ("trainjob.yaml", ["spec", "trainer", "numProcPerNode"]),
        ("trainjob.yaml", node + ["volumes"]),
        ("trainjob.yaml", node + ["containers", 0, "volumeMounts"]),
    ):
        assert refused(misspelt(examples[name], path)), f"{name}: a misspelt {path[-1]} goes through"
    wrong = copy.deepcopy(examples["pack.yaml"])
    wrong["spec"]["completions"] = "8"
    assert refused(wrong), "pack.yaml: completions may be a string"
    print(f"{', '.join(examples)}: as Kubernetes {kubernetes_validate.latest_version()} and Kubeflow's Trainer have them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
