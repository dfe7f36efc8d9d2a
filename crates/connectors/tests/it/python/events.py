"""The messages of EventService, made without generated code."""
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def event_class():
    file = descriptor_pb2.FileDescriptorProto(name="event.proto", package="test", syntax="proto3")
    event = file.message_type.add(name="Event")
    string, message = 9, 11
    event.field.add(name="payload", number=1, type=string, label=1)
    event.field.add(name="headers", number=2, type=message, label=3, type_name=".test.Event.HeadersEntry")
    entry = event.nested_type.add(name="HeadersEntry")
    entry.field.add(name="key", number=1, type=string, label=1)
    entry.field.add(name="value", number=2, type=string, label=1)
    entry.options.map_entry = True
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.Event"))


Event = event_class()
