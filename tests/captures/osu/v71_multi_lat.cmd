mpiexec -hostfile $NODEFILE --ppn $PPN --np $NP osu_multi_lat
