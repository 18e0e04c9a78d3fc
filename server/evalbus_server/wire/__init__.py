"""Values of the server <-> messages of the contract, checked on the way in; and the JSON that scripts read. No IO."""
