"""The event store: streams of events, each behind one guarded Tip, in the layout of the DynamoStore document."""
