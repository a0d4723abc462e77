mpiexec -n 2 osu_hello
