"""Bill of materials: what an environment is made of, from its lock, as CycloneDX 1.6."""

from __future__ import annotations

import uuid

from cyclonedx.model import Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from plumbline.software.environments import Environment, Lock, PackageNode


def of(environment: Environment, lock: Lock, commits: dict[str, str]) -> str:
    """The bill of one environment as JSON; the same lock gives the same text.

    :arg commits: ``spack`` and ``packages``, with tag and commit.
    """
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_OID, lock.sha256))
    # The time of printing says nothing of what is printed.
    bom.metadata.timestamp = None  # type: ignore[assignment] # it may be none at run time
    bom.metadata.component = root = Component(
        name=environment.name,
        type=ComponentType.PLATFORM,
        bom_ref=environment.name,
        properties=[
            Property(name="spack:lock:sha256", value=lock.sha256),
            *(
                Property(name=f"spack:{name}", value=commits[name])
                for name in ("spack", "packages")
            ),
        ],
    )
    components = {digest: _component(node) for digest, node in lock.nodes.items()}
    for component in components.values():
        bom.components.add(component)
    bom.register_dependency(root, [components[digest] for digest in lock.roots])
    for digest, node in lock.nodes.items():
        bom.register_dependency(
            components[digest], [components[needed] for needed in node.dependencies]
        )
    return JsonV1Dot6(bom).output_as_string(indent=1)


def _component(node: PackageNode) -> Component:
    facts = {
        "spack:hash": node.hash,
        "spack:namespace": node.namespace,
        "spack:os": node.platform,
        "spack:target": node.target,
        "spack:external": node.prefix,
        "spack:modules": " ".join(node.modules),
    }
    return Component(
        name=node.name,
        version=node.version,
        type=ComponentType.APPLICATION,
        bom_ref=f"{node.spec}/{node.hash}",
        purl=PackageURL("generic", "spack", node.name, node.version),
        properties=[Property(name=name, value=value) for name, value in facts.items() if value],
    )
