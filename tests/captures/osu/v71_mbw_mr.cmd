mpiexec -hostfile $NODEFILE --ppn $PPN --np $NP osu_mbw_mr
