comm_scope --nosuchoption
