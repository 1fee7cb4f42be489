"""The wire is a public fact: every message, field, number and type of ours against those that tritonclient carries."""

import subprocess
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from tritonclient.grpc import model_config_pb2, service_pb2

ROOT = Path(__file__).resolve().parents[2]
FIRST_OWN_NUMBER = 1000

# Of the Open Inference Protocol; Triton lacks it.
OPEN_INFERENCE_ONLY = {"inference.ModelMetadataResponse": {"properties": 6}}

# Not carried on purpose: shared memory, tracing and logging from outside.
LEFT_OUT_CALLS = {
    "SystemSharedMemoryStatus", "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister",
    "CudaSharedMemoryStatus", "CudaSharedMemoryRegister", "CudaSharedMemoryUnregister",
    "TraceSetting", "LogSettings",
}

# Headroom's own messages and enums.
OWN_TYPES = {
    "inference.ModelInput.Role", "inference.ModelInput.ValueRange",
    "inference.ModelSequence", "inference.ModelSequence.Padding", "inference.ModelSequence.PaddingCheck",
    "inference.ModelSequence.Tier", "inference.ModelSequence.Tier.Action", "inference.ModelMemory", "inference.ModelLimits",
    "inference.ModelPrecision", "inference.ModelPrecision.Mode",
}
OWN_FIELDS = {
    "inference.ModelInput": {"role": 1000, "value_range": 1001, "pad_value": 1002},
    "inference.ModelConfig": {"sequence": 1000, "memory": 1001, "limits": 1002, "precision": 1003},
}


def types_in(files):
    """Every message and enum of the files by full name, as descriptor protos, without the entries of maps."""
    messages, enums = {}, {}

    def visit(prefix, holder, nested, inner_enums):
        for enum in inner_enums:
            enums[f"{prefix}.{enum.name}"] = enum
        for message in nested:
            name = f"{prefix}.{message.name}"
            messages[name] = message
            visit(name, message, message.nested_type, message.enum_type)

    for file in files:
        visit(file.package, file, file.message_type, file.enum_type)
    return messages, enums


def services_in(files):
    return {service.name: service for file in files for service in file.service}


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    path = tmp_path_factory.mktemp("descriptors") / "ours.bin"
    subprocess.run(["protoc", f"--proto_path={ROOT}", f"--descriptor_set_out={path}", "proto/model_config.proto",
                    "proto/open_inference.proto"], check=True)
    files = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    return list(files)


@pytest.fixture(scope="module")
def theirs():
    files = []
    for module in (service_pb2, model_config_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        files.append(file)
    return files


def fields_of(message):
    """What a field is on the wire and in text: all that both sides must agree on."""
    oneofs = [oneof.name for oneof in message.oneof_decl]
    return {field.name: (field.number, field.type, field.type_name, field.label, field.json_name or camel(field.name),
                         oneofs[field.oneof_index] if field.HasField("oneof_index") else None, field.options.packed)
            for field in message.field}


def camel(name):
    head, *rest = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)


def left_out(name):
    return any(name.split(".")[1] in (f"{call}Request", f"{call}Response") for call in LEFT_OUT_CALLS)


def test_every_message_and_enum_of_theirs_is_ours_but_for_the_calls_left_out(ours, theirs):
    our_messages, our_enums = types_in(ours)
    their_messages, their_enums = types_in(theirs)
    carried = {name for name in {**their_messages, **their_enums} if not left_out(name)}
    added = {f"{message}.{camel('_' + field)}Entry" for message, fields in OPEN_INFERENCE_ONLY.items() for field in fields}
    assert {**our_messages, **our_enums}.keys() == carried | OWN_TYPES | added
    assert len(carried) > 90


def test_every_field_agrees_in_both_directions(ours, theirs):
    our_messages, _ = types_in(ours)
    their_messages, _ = types_in(theirs)
    compared = 0
    for name, message in our_messages.items():
        if name not in their_messages:
            continue
        additions = {**OPEN_INFERENCE_ONLY.get(name, {}), **OWN_FIELDS.get(name, {})}
        fields = fields_of(message)
        assert {field: fields[field][0] for field in additions} == additions, name
        assert {field: what for field, what in fields.items() if field not in additions} == fields_of(their_messages[name]), name
        assert message.options.map_entry == their_messages[name].options.map_entry, name
        compared += len(message.field)
    assert compared > 250


def test_every_enum_value_agrees(ours, theirs):
    _, our_enums = types_in(ours)
    _, their_enums = types_in(theirs)
    assert their_enums.keys() == our_enums.keys() - OWN_TYPES
    for name, enum in their_enums.items():
        values = {value.name: value.number for value in enum.value}
        assert {value.name: value.number for value in our_enums[name].value} == values, name


def test_what_we_add_to_their_messages_starts_at_1000(ours, theirs):
    our_messages, _ = types_in(ours)
    their_messages, _ = types_in(theirs)
    for name in our_messages.keys() & their_messages.keys():
        known = {field.name for field in their_messages[name].field} | OPEN_INFERENCE_ONLY.get(name, {}).keys()
        assert all(field.number >= FIRST_OWN_NUMBER for field in our_messages[name].field if field.name not in known), name


def test_every_call_agrees_but_for_those_left_out(ours, theirs):
    def calls(files):
        service = services_in(files)["GRPCInferenceService"]
        return {call.name: (call.input_type, call.output_type, call.client_streaming, call.server_streaming)
                for call in service.method}
    wanted = {name: call for name, call in calls(theirs).items() if name not in LEFT_OUT_CALLS}
    assert calls(ours) == wanted
    assert LEFT_OUT_CALLS <= calls(theirs).keys()
    assert {file.package for file in ours} == {"inference"}
    assert {file.syntax for file in ours} == {"proto3"}
